"""The service's log: one JSON object per line on standard error."""

import json
import logging
import sys
import time
from typing import Any, TextIO

from macs.core.console import LogLines


class JsonLines(logging.Formatter):
    """`extra={"fields": {...}}` of a record become keys of its object."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class Lines(logging.StreamHandler[TextIO]):
    """A reader that went away must not end the service."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def write_log(level: str = "info") -> None:
    """Write the service's log, and uvicorn's messages about requests that it refuses.

    What --verbose prints in other commands is part of that log.
    """
    handler = Lines(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, least in (("macs.serve", level.upper()), ("uvicorn.error", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
    package = logging.getLogger("macs")
    package.handlers = [handler if isinstance(each, LogLines) else each for each in package.handlers]
