"""Watch: the detector that requests get, loaded again when its file changes. A broken replacement changes nothing."""

import asyncio
import logging
from collections.abc import Callable

from macs.core.errors import MacsError
from macs.serve.served import Served, Source

log = logging.getLogger("macs.serve")


class Watch:
    """Requests that were accepted before a reload are answered by the detector that they began with."""

    def __init__(self, source: Source, heard: Callable[[bool], None]) -> None:
        """Load the detector; `heard(succeeded)` is called after every later attempt."""
        self.source, self._heard = source, heard
        self._seen = source.signature()
        self.served: Served = source.load()
        self._loading = asyncio.Lock()

    async def reload(self) -> bool:
        """Load the file again, while requests go on; return whether that succeeded."""
        async with self._loading:
            self._seen = self.source.signature()
            try:
                self.served = await asyncio.to_thread(self.source.load)
            except MacsError as error:
                log.warning("reload failed", extra={"fields": {"error": error.sentence, "kept": self._checksum}})
                self._heard(False)
                return False
            except Exception:
                log.exception("reload failed", extra={"fields": {"kept": self._checksum}})
                self._heard(False)
                return False
        log.info("reloaded", extra={"fields": {"checksum": self._checksum}})
        self._heard(True)
        return True

    async def run(self, interval: float) -> None:
        """Look at the file every `interval` seconds, for ever. A file that is missing is waited for."""
        while True:
            await asyncio.sleep(interval)
            signature = self.source.signature()
            if signature is not None and signature != self._seen:
                await self.reload()

    @property
    def _checksum(self) -> str:
        return self.served.runtime.sha256
