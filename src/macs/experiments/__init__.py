"""Experiments: trainings that are done once and found again, and the search for a margin among them."""
