"""Text from elsewhere, such as the names of files, made safe to print and to write."""

import re

HALF = re.compile("[\ud800-\udfff]")  # half a character: no encoding can write it
STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """On one line, without half characters and without those that steer a terminal or turn text around."""
    return STEERING.sub(_escaped, text)


def whole(text: str) -> str:
    """Text that can be encoded: half characters and NUL, which CSV readers stop at, are escaped."""
    return HALF.sub(_escaped, text).replace("\0", "\\x00")


def _escaped(sign: re.Match[str]) -> str:
    code = ord(sign.group())
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no UTF-8, as Python carries it around
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
