"""The paper's numbers as printed, and its tables and figures reproduced from our own runs."""
