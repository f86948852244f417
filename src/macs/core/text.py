"""Text from elsewhere, such as the names of files, made safe to print and to write."""

import re

HALF = re.compile("[\ud800-\udfff]")  # half a character: no encoding can write it


def printable(text: str) -> str:
    """On one line, without half characters or characters that steer a terminal, turn text around or show nothing."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def whole(text: str) -> str:
    """Text that can be encoded: half characters and NUL, which CSV readers stop at, are escaped."""
    return HALF.sub(lambda half: _escaped(half.group()), text).replace("\0", "\\x00")


def _escaped(sign: str) -> str:
    code = ord(sign)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no UTF-8, as Python carries it around
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
