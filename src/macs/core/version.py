"""The version of macs, which files that it writes name."""

__version__ = "0.1.0"
