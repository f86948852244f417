"""Research: the paper's tables and figures from our own runs, and the study that compares methods and scores."""
