"""Documents that hold generated tables, between a pair of markers for each:

<!-- study: core -->
...
<!-- end -->
"""

import re
from collections.abc import Mapping

from macs.core.errors import MacsError

BLOCK = re.compile(r"<!-- study: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def refreshed(text: str, blocks: Mapping[str, str]) -> str:
    """The document with the present tables between its markers."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in blocks:
            raise MacsError(f"The document asks for the table {name!r}; there are {', '.join(blocks)}.")
        return f"<!-- study: {name} -->\n\n{blocks[name]}\n\n<!-- end -->"

    return BLOCK.sub(block, text)
