"""The body of a prediction request: read within limits, then parsed into images; nothing is written to disk.

A body must arrive in time, be small enough, and fit into the memory that all bodies share. It has one of three forms:

    multipart/form-data     any number of files in the field `images`
    application/json        {"images": [{"name": "a.png", "base64": "..."}]}
    image/*, or application/octet-stream    one image

The content type only says which of the forms it is; a decoder finds an image's format in its bytes.
"""

import asyncio
import base64
import binascii
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import Message
from typing import Any

import numpy as np
from numpy.typing import NDArray
from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError

from macs.core.errors import MacsError
from macs.core.text import printable
from macs.detector.runtime import Runtime
from macs.serve.loaded_detector import LoadedDetector
from macs.serve.pipeline import Overloaded
from macs.serve.settings import ServeSettings

ASGIMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[ASGIMessage]]

CLOSE = {"Connection": "close"}  # what is left of the body is not read
FIELD = "images"
LONGEST = 255  # characters of a name that is sent back
HEADER_BYTES = 4096  # of one part of a multipart body
JSON_VALUES = 100_000  # in a body without arrays of numbers; an empty list takes 2 bytes there and 70 in memory
FORMS = "multipart/form-data with files in the field `images`, application/json, or an image itself (image/*)"


class Refused(Exception):
    """A request that gets no verdicts: a status code, and a sentence for the client."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


def busy(overload: Overloaded) -> Refused:
    sentence = f"Too many images are waiting; try again in {overload.retry_after} s."
    return Refused(429, sentence, {"Retry-After": str(overload.retry_after)})


class BodyReader:
    """Reads the bodies of all requests, within the limits on each of them and on all together."""

    def __init__(self, settings: ServeSettings, check_room: Callable[[], None]) -> None:
        """`check_room` raises Overloaded while no further image is accepted."""
        self._max_bytes, self._most_buffered = settings.max_bytes, settings.most_buffered
        self._timeout, self._check_room = settings.timeout, check_room
        self.buffered = 0  # bytes of bodies in memory

    def admit(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request whose body would be refused whatever it holds."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_bytes:
            raise self._too_large()
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refused(415, "Compressed bodies are not read; send the body uncompressed.")
        try:
            self._check_room()
        except Overloaded as overload:
            raise busy(overload) from None

    @asynccontextmanager
    async def body(self, receive: Receive) -> AsyncIterator[bytes]:
        """The body of a request, which counts as held in memory until the block ends."""
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            try:
                async with asyncio.timeout(self._timeout):
                    while more:
                        chunk, more = self._accepted(await receive(), size)
                        size += len(chunk)
                        chunks.append(chunk)
            except TimeoutError:
                sentence = f"The body did not arrive within {self._timeout:g} seconds."
                raise Refused(408, sentence, CLOSE) from None
            yield chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            self.buffered -= size

    def _accepted(self, message: ASGIMessage, size: int) -> tuple[bytes, bool]:
        """The next chunk of a body of which `size` bytes have arrived, and whether more follow.

        Raise if this body, or all of them together, would become too large.
        """
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        if size + len(chunk) > self._max_bytes:
            raise self._too_large()
        if self.buffered + len(chunk) > self._most_buffered:
            raise busy(Overloaded(1))
        self.buffered += len(chunk)
        return chunk, message.get("more_body", False)

    def _too_large(self) -> Refused:
        return Refused(413, f"A body may have {self._max_bytes:,} bytes, and this one has more.", CLOSE)


@dataclass(frozen=True)
class Upload:
    """An image as it was sent, or the reason why there is none."""

    name: str | None
    content: bytes
    reason: str = ""

    def read(self, detector: LoadedDetector, most_pixels: int) -> NDArray[np.uint8]:
        """Its pixels, as the detector wants them."""
        if self.reason:
            raise MacsError(self.reason)
        assert isinstance(detector.runtime, Runtime)  # which is what gets images
        return detector.runtime.preparation.decode(self.content, most_pixels)


def parse(content_type: str, body: bytes, most: int) -> list[Upload]:
    """The images of a body, at most `most`; Refused if there are none, or if its form is another."""
    kind, options = media_type(content_type)
    if kind == "multipart/form-data":
        uploads = from_multipart(body, options.get("boundary", ""), most)
    elif kind == "application/json":
        uploads = from_json(body, most)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        uploads = [Upload(None, body)] if body else []
    else:
        raise Refused(415, f"A body of the type {printable(kind)[:80]!r} cannot be read; send {FORMS}.")
    if not uploads:
        raise Refused(422, f"The request holds no image; send {FORMS}.")
    return uploads


def media_type(header: str) -> tuple[str, dict[str, str]]:
    """For example, multipart/form-data and its boundary."""
    message = Message()
    try:
        message["content-type"] = header
        options = dict(message.get_params(failobj=[])[1:])
    except Exception:  # the standard library raises errors of many kinds on a malformed header
        return header.partition(";")[0].strip().lower(), {}
    return header.partition(";")[0].strip().lower(), {key.lower(): str(value) for key, value in options.items()}


def from_multipart(body: bytes, boundary: str, most: int) -> list[Upload]:
    """The files of a form, without temporary files."""
    form = Form(most)
    try:
        # python-multipart declares its callbacks one by one; a plain dictionary of them is what it reads.
        parser = MultipartParser(boundary.encode("latin-1"), form.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except (MultipartParseError, UnicodeError, ValueError) as error:
        raise Refused(400, f"The multipart body is malformed: {str(error).rstrip('.')[:200]}.") from None
    if not form.ended:
        raise Refused(400, "The multipart body is malformed: it ends before its last boundary.")
    return form.uploads


class Form:
    """What a multipart parser has found so far."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.uploads: list[Upload] = []
        self.ended = False
        self._field, self._value, self._content = b"", b"", bytearray()
        self._headers: dict[str, str] = {}
        self._header_bytes = 0

    def callbacks(self) -> dict[str, Callable[..., None]]:
        names = ("part_begin", "part_data", "part_end", "header_field", "header_value", "header_end", "end")
        return {f"on_{name}": getattr(self, f"_{name}") for name in names}

    def _part_begin(self) -> None:
        if len(self.uploads) == self.most:
            raise too_many(self.most)
        self._headers, self._content, self._header_bytes = {}, bytearray(), 0

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += self._counted(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._counted(data[start:end])

    def _counted(self, part: bytes) -> bytes:
        self._header_bytes += len(part)
        if self._header_bytes > HEADER_BYTES:
            raise Refused(400, "The multipart body is malformed: a part has very long headers.")
        return part

    def _header_end(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = self._value.decode("utf-8", "replace")
        self._field = self._value = b""

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def _part_end(self) -> None:
        message = Message()
        message["content-disposition"] = self._headers.get("content-disposition", "")
        field = message.get_param("name", header="content-disposition")
        if field != FIELD:
            raise Refused(422, f"There is no field {printable(str(field))[:80]!r}; send files in the field {FIELD!r}.")
        self.uploads.append(Upload(shown(message.get_filename()), bytes(self._content)))

    def _end(self) -> None:
        self.ended = True


def from_json(body: bytes, most: int) -> list[Upload]:
    value = loaded(body, JSON_VALUES)
    images = value.get("images") if isinstance(value, dict) else None
    if not isinstance(images, list) or len(value) != 1:
        raise Refused(422, 'A JSON body must be {"images": [{"name": ..., "base64": ...}]} and no more.')
    if len(images) > most:
        raise too_many(most)
    return [from_base64(image, place) for place, image in enumerate(images)]


def from_base64(image: Any, place: int) -> Upload:
    """One entry of a JSON body."""
    if (
        not isinstance(image, dict)
        or not isinstance(image.get("base64"), str)
        or not image.keys() <= {"name", "base64"}
    ):
        raise Refused(422, f'images[{place}] must be {{"name": ..., "base64": ...}}, with a text in base64.')
    name = image.get("name")
    if not isinstance(name, str | None):
        raise Refused(422, f"images[{place}].name must be a text or null.")
    try:
        return Upload(shown(name), base64.b64decode(image["base64"], validate=True))
    except (binascii.Error, ValueError):
        return Upload(shown(name), b"", "it is not base64")


def loaded(body: bytes, most_values: int) -> Any:
    """The value in a JSON body, refused before it is parsed if it would hold more values than that."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > most_values:
        raise Refused(
            413, f"A JSON body may hold {most_values:,} values here, and this one holds more; send fewer, or bytes."
        )
    try:
        return json.loads(body, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Refused(400, "The body is not JSON.") from None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of a JSON object; Refused if a key is there twice, of which each reader takes another one."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise Refused(400, f"The key {printable(key)[:80]!r} is given more than once in the JSON body; give it once.")
    return entries


def too_many(most: int) -> Refused:
    return Refused(413, f"A request may hold {most} images, and this one holds more; send them in several requests.")


def shown(name: str | None) -> str | None:
    """A name as it is sent back: printable, and not too long."""
    return None if name is None else printable(name[:LONGEST])
