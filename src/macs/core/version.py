"""The version of macs, recorded in the files that it writes."""

__version__ = "0.1.0"
