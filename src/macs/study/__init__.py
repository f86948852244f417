"""The study: which method and which score, compared fairly on real images, from cells that stand in the repository."""
