"""`python -m macs` is `macs`."""

from macs.cli import main

main()
