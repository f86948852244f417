"""The study: which method and which score, compared fairly on real images, from cells stored in the repository."""
