"""`macs serve`: the application behind a socket, run by uvicorn in one process.

SIGTERM, SIGINT   /readyz says no; after `drain` seconds nothing more is accepted, and what was accepted is answered
SIGHUP            the detector's file is loaded again
"""

import asyncio
import errno
import logging
import signal
import socket
import time
from asyncio import TimerHandle, Transport
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from macs.core.errors import MacsError
from macs.serve.middleware import HEALTH_ONLY
from macs.serve.settings import ServeSettings

HEADER_BYTES = 2**16  # of a request, before its body
HEADER_SECONDS = 10.0  # in which they must arrive, unless the timeout is shorter
HEALTH_SECONDS = 1.0  # the same for a connection that is one too many, which only asks for health
RESERVE = 32  # of such connections; those beyond are turned away unheard
PER_CLIENT = 0.75  # most of all connections that one address may hold
IDLE_SECONDS = 30  # after which a connection without a request is closed
LINGER_SECONDS = 0.5  # in which it may still send one when the service stops
BACKLOG = 2048

log = logging.getLogger("macs.serve")


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, not yet listening."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise MacsError(f"There is no address {host!r}; use 127.0.0.1 for this machine, 0.0.0.0 for all.") from None
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise unavailable(host, port, error) from None
    return bound


def unavailable(host: str, port: int, error: OSError) -> MacsError:
    """The system's reason as a sentence."""
    reasons = {
        errno.EADDRINUSE: f"Port {port} of {host} is taken; name another with --port, or 0 for any that is free.",
        errno.EACCES: f"Port {port} needs more rights; name one above 1023 with --port.",
        errno.EADDRNOTAVAIL: f"{host} is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all.",
    }
    return MacsError(reasons.get(error.errno or 0, f"Cannot listen at {host}, port {port}: {error.strerror}."))


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    app: FastAPI, bound: socket.socket, settings: ServeSettings, heard: Callable[[str], object] = lambda address: None
) -> None:
    """Answer requests until a signal says to stop; `heard(address)` is called once it answers there."""
    host, port = bound.getsockname()[:2]
    try:
        bound.listen(BACKLOG)
    except OSError as error:  # several sockets may be bound to a port, and the first that listens has it
        bound.close()
        raise unavailable(host, port, error) from None

    class Connection(GuardedConnection):
        most, seconds = settings.max_connections, min(HEADER_SECONDS, settings.timeout)

    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(2 * settings.timeout) + 1,
        backlog=BACKLOG,
    )
    Server(config, app, settings, heard).run([bound])


class Server(uvicorn.Server):
    """uvicorn's server, which tells the application before it stops."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, settings: ServeSettings, heard: Callable[[str], object]
    ) -> None:
        super().__init__(config)
        self.service, self.settings, self.heard = app.state.service, settings, heard

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:  # the application did not start, and uvicorn's log says why
            return
        loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, lambda: self._keep(loop.create_task(self.service.watch.reload())))
        addresses = [address_of(bound) for bound in sockets or []]
        for address in addresses:
            self.heard(address)
        log.info("started", extra={"fields": {"addresses": addresses}})

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._task = task  # otherwise it might be garbage-collected before it is done

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.draining and sig == signal.SIGINT:  # Ctrl-C for the second time
            self.force_exit = self.should_exit = True
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        if self.service.draining and not self.should_exit:
            self._asked = getattr(self, "_asked", time.monotonic())
            self.should_exit = time.monotonic() - self._asked >= self.settings.drain
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that wait at the socket, since closing it would reset them; answer all; end."""
        waiting = [connection for bound in sockets or [] for connection in waiting_at(bound)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await asyncio.get_running_loop().connect_accepted_socket(self._connection, connection)
        await super().shutdown(sockets)
        counts = {"accepted": self.service.accepted, "answered": self.service.answered}
        log.info("stopped", extra={"fields": counts})

    def _connection(self) -> HttpToolsProtocol:
        # uvicorn declares any kind of connection here; ours is always an HttpToolsProtocol.
        connection: HttpToolsProtocol = self.config.http_protocol_class(  # type: ignore[assignment, call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return connection


def waiting_at(bound: socket.socket) -> Iterator[socket.socket]:
    """The connections that the system has made and nobody has accepted yet."""
    bound.setblocking(False)
    with suppress(OSError):
        while True:
            yield bound.accept()[0]


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's connection, with limits on how many there are, in all and per client, and on a request's headers.

    A connection beyond the limits may still ask for health: otherwise whoever fills the service would also end it.
    """

    most, seconds = 1000, HEADER_SECONDS
    health_only = False

    # asyncio declares that any transport may come; uvicorn's protocol, like ours, takes one that reads and writes.
    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._header_bytes = 0
        self._headers_due: TimerHandle | None = None
        held = sum(self._same_client(other) for other in self.connections)
        self.health_only = len(self.connections) > self.most or held > max(1, int(PER_CLIENT * self.most))
        if len(self.connections) > self.most + RESERVE:
            self._turn_away(b"429 Too Many Requests", b'{"error": "Too many connections are open; try again."}')
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._headers_due is not None:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES + len(data):  # this chunk may hold the beginning of the body
                self._turn_away(b"431 Request Header Fields Too Large", b'{"error": "The headers are too long."}')
                return
        super().data_received(data)

    def _same_client(self, other: object) -> bool:
        return isinstance(other, GuardedConnection) and (self.client or [None])[0] == (other.client or [None])[0]

    def on_message_begin(self) -> None:
        self._expect_headers()
        super().on_message_begin()
        self.scope[HEALTH_ONLY] = self.health_only  # type: ignore[literal-required]  # the middleware reads it

    def on_headers_complete(self) -> None:
        self._headers_arrived()
        super().on_headers_complete()

    def shutdown(self) -> None:
        """The service stops: an idle connection stays open a little longer, since a request may be on its way."""
        if self._idle:
            self.loop.call_later(LINGER_SECONDS, self._close_idle)
        else:
            super().shutdown()

    def _close_idle(self) -> None:
        if self._idle:
            self.transport.close()

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._header_bytes = 0
            seconds = min(self.seconds, HEALTH_SECONDS) if self.health_only else self.seconds
            self._headers_due = self.loop.call_later(seconds, self._too_slow)

    def _headers_arrived(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _too_slow(self) -> None:
        self._turn_away(b"408 Request Timeout", b'{"error": "The headers of the request did not arrive in time."}')

    def _turn_away(self, status: bytes, content: bytes) -> None:
        """Answer without having understood the request, and close."""
        retry = b"retry-after: 1\r\n" if status.startswith(b"429") else b""
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(content)
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + retry + head + b"\r\n" + content)
        self.transport.close()
