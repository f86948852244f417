"""A web server on this machine that fails as real ones do: a fault for each of the next requests, then none."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Site:
    """What the server gives out and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    etag: str | None = '"1"'
    modified: str | None = None
    ranges: bool = True
    lengths: bool = True
    encoding: str | None = None
    faults: list[int | str] = field(default_factory=list)  # a status, or "drop N": hang up after N bytes
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)  # the headers of each request
    sent: int = 0  # bytes of content in all


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, site)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield site
        server.shutdown()


def answer(request: BaseHTTPRequestHandler, site: Site) -> None:
    site.asked.append(dict(request.headers))
    fault = site.faults.pop(0) if site.faults else ""
    content = site.files.get(request.path)
    if isinstance(fault, int) or content is None:
        return request.send_error(fault if isinstance(fault, int) else 404)
    body = content
    begun = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    same = request.headers.get("If-Range") in (None, site.etag, site.modified)
    if begun and site.ranges and same:
        start = int(begun[1])
        request.send_response(206 if start < len(content) else 416)
        covers = f"{start}-{len(content) - 1}" if start < len(content) else "*"
        request.send_header("Content-Range", f"bytes {covers}/{len(content)}")
        body = content[start:]
    else:
        request.send_response(200)
    if site.lengths:
        request.send_header("Content-Length", str(len(body)))
    for name, value in (("ETag", site.etag), ("Last-Modified", site.modified), ("Content-Encoding", site.encoding)):
        if value is not None:
            request.send_header(name, value)
    request.end_headers()
    if fault:
        body = body[: int(fault.removeprefix("drop "))]
    site.sent += len(body)  # before it is sent, or the client could look too early
    request.wfile.write(body)
    return None
