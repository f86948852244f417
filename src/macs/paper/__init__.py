"""The paper's numbers as it prints them, and its tables and figures made again from our own runs."""
