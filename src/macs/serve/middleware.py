"""Every request passes this middleware on its way in and out, whichever route it takes.

A request gets an id; it must have the API key where there is one, and else name a host that is ours. A connection whose
request is answered before its body has arrived is closed, so that nobody can hold it by sending the rest slowly. Every
answer gets security headers, is counted and logged; an error inside becomes a sentence without a traceback.
"""

import hashlib
import hmac
import ipaddress
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from pathlib import Path
from typing import Any

from macs.core.errors import MacsError
from macs.core.files import input_file
from macs.core.text import printable
from macs.serve.service import Service, Visit
from macs.serve.uploads import CLOSE, ASGIMessage, ClientGone, Receive, Refused

Scope = MutableMapping[str, Any]
Send = Callable[[ASGIMessage], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
]
HEALTH = {"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"}  # answered to everybody, even under overload
OPEN = HEALTH | {"/", "/docs", "/openapi.json"}  # without a key
PAGE = "/page/"  # and everything below it
KEY = "MACS_API_KEY"  # holds the key, unless a file does
ANY_HOST = "*"
HEALTH_ONLY = "macs.health_only"  # in the scope of a request whose connection is one too many
ONCE = (b"host", b"origin", b"authorization", b"x-api-key", b"content-type", b"content-encoding", b"x-request-id")
IDENTIFIER = re.compile(rb"[A-Za-z0-9._-]{1,64}")
GONE = 499  # the status in log and metrics of a request whose client hung up

log = logging.getLogger("macs.serve")


class Middleware:
    """An ASGI application around another one, whose service it reports to."""

    def __init__(self, app: App, service: Service, key: str | None = None, host_names: Collection[str] = ()) -> None:
        self.app, self.service = app, service
        self._key = None if key is None else digest(key.encode())
        self._host_names = {name.lower() for name in host_names}
        self._refused, self._told = 0, 0.0  # requests answered 429 since the log last said so, and when that was

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given_id = headers.get(b"x-request-id", b"")
        visit = Visit(given_id.decode() if IDENTIFIER.fullmatch(given_id) else secrets.token_hex(8))
        visit.unread = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        scope["macs.visit"] = visit
        self.service.accepted += 1
        try:
            await self._answer(scope, headers, self._receiver(visit, receive), self._sender(scope, visit, send))
        finally:
            self._record(scope, visit)

    async def _answer(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        try:
            self._admit(scope, headers)
            await self.app(scope, receive, send)
        except Refused as refusal:
            await refuse(scope, send, refusal)
        except ClientGone:
            scope["macs.visit"].status = GONE
        except Exception:
            log.exception("failed", extra={"fields": {"request_id": scope["macs.visit"].request_id}})
            if not scope["macs.visit"].status:
                await refuse(scope, send, Refused(500, "The service failed on this request; its log says why."))

    def _admit(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Refuse what can be refused without the body."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path not in HEALTH:
            if scope.get(HEALTH_ONLY):
                raise Refused(429, "Too many connections are open; try again.", {"Retry-After": "1", **CLOSE})
            if self._key is None and ANY_HOST not in self._host_names:
                check_host(headers, self._host_names)
        names = [name for name, _ in scope["headers"]]
        for name in ONCE:
            if names.count(name) > 1:
                raise Refused(400, f"The header {name.decode()} is given more than once; send one.")
        if self._key is not None and path not in OPEN and not path.startswith(PAGE):
            bearer = headers.get(b"authorization", b"")
            given = bearer[7:] if bearer[:7].lower() == b"bearer " else headers.get(b"x-api-key", b"")
            if not hmac.compare_digest(digest(given.strip()), self._key):
                challenge = {"WWW-Authenticate": "Bearer"}
                raise Refused(401, "This needs the API key: send Authorization: Bearer KEY, or X-API-Key.", challenge)
        if scope["method"] == "POST":
            self.service.bodies.admit(headers)

    def _receiver(self, visit: Visit, receive: Receive) -> Receive:
        async def receiving() -> ASGIMessage:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                visit.unread = False
            return message

        return receiving

    def _sender(self, scope: Scope, visit: Visit, send: Send) -> Send:
        async def sending(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                headers = [*message["headers"], *HEADERS, (b"x-request-id", visit.request_id.encode())]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                closing = self.service.draining or visit.unread or scope.get(HEALTH_ONLY)
                if closing and (b"connection", b"close") not in headers:
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        return sending

    def _record(self, scope: Scope, visit: Visit) -> None:
        """Count the request and log it; of those answered 429, which may be many, log one line per second."""
        self.service.answered += visit.status not in (0, GONE)
        seconds = time.perf_counter() - visit.started
        route = getattr(scope.get("route"), "path", "other")
        self.service.metrics.requests.labels(route, visit.status).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
        if visit.status == 429:
            self._refused += 1
            if time.monotonic() - self._told >= 1:
                log.warning("overloaded", extra={"fields": {"refused": self._refused}})
                self._refused, self._told = 0, time.monotonic()
        elif log.isEnabledFor(logging.INFO):
            fields = {
                "request_id": visit.request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": visit.status,
                "ms": round(1000 * seconds, 2),
                **({"images": visit.images, "ood": visit.ood} if visit.images else {}),
            }
            log.info("request", extra={"fields": fields})


def check_host(headers: dict[bytes, bytes], ours: Collection[str]) -> None:
    """Refuse a request that names another host, or that another site's page makes.

    A page on the internet may let its own name lead to this machine (DNS rebinding), and its visitor's browser would
    then let it read our answers. An address in digits cannot be led elsewhere, and neither can localhost.
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name = host.rpartition(":")[0] if re.search(r":\d*$", host) and not host.endswith("]") else host
    if host and not (is_address(name) or name == "localhost" or name.endswith(".localhost") or name in ours):
        raise Refused(
            421,
            f"This service does not answer as {printable(name)[:80]!r}; start it with --host-name, or with an API key.",
        )
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    if origin and origin.partition("://")[2] != host:
        raise Refused(403, "Pages of other sites may not ask this service; start it with an API key to allow them.")


def is_address(name: str) -> bool:
    """Whether a host is given by its address, such as 127.0.0.1 or [::1]."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def key_of_clients(file: Path | None = None) -> str | None:
    """The key that clients must send; None where there is none. An empty file is a mistake."""
    if file is None:
        key = os.environ.get(KEY)
        where = f"${KEY}"
    else:
        key = input_file(file, "key file").read_text(encoding="utf-8").strip()
        where = str(file)
    if key is not None and not key.strip():
        raise MacsError(f"{where} holds no key; put one in, or leave it out.")
    return key


def digest(key: bytes) -> bytes:
    """A hash, of the same length for every key, so that every comparison takes the same time."""
    return hashlib.sha256(key).digest()


async def refuse(scope: Scope, send: Send, refusal: Refused) -> None:
    """Answer with the sentence."""
    content = json.dumps({"error": refusal.sentence, "request_id": scope["macs.visit"].request_id}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
