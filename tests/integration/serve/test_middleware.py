"""What every request passes: ids, the API key, headers, the log, and limits on memory and time."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from running import Running, form, serving, verdicts

KEY = "correct horse battery staple"


@pytest.fixture(scope="module")
def locked(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text(f"{KEY}\n")
    with serving(exported, "--api-key-file", file, "--threads", 1, "--timeout", 1, "--max-connections", 8) as service:
        yield service


def test_a_key_is_needed_for_all_but_health_and_the_page(locked: Running, pictures: dict[str, bytes]) -> None:
    with httpx.Client(base_url=locked.url, timeout=60) as client:
        for path in ("/healthz", "/readyz", "/", "/page/app.js", "/docs", "/openapi.json", "/v2/health/ready"):
            assert client.get(path).status_code == 200, path
        wrong = [
            {},
            {"x-api-key": "wrong"},
            {"x-api-key": ""},
            {"authorization": f"Basic {KEY}"},
            {"x-api-key": KEY[:-1]},
        ]
        for path in ("/v1/detector", "/v1/drift", "/metrics", "/v2", "/v2/models/d", "/nothing"):
            for headers in wrong:
                answer = client.get(path, headers=headers)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        for headers in ({"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}):
            assert client.get("/v1/detector", headers=headers).status_code == 200
            assert len(verdicts(client.post("/v1/predict", files=form(pictures), headers=headers))) == len(pictures)


def test_every_answer_has_an_id_and_security_headers(client: httpx.Client) -> None:
    for path in ("/healthz", "/", "/nothing", "/v1/detector"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';") and "unsafe" not in policy
        assert len(headers["x-request-id"]) == 16 and "server" not in headers
    assert client.get("/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for bad in ("two words", "x" * 65, '"'):
        assert client.get("/healthz", headers={"x-request-id": bad}).headers["x-request-id"] != bad


def test_the_log_has_one_object_per_request(running: Running, client: httpx.Client, pictures: dict[str, bytes]) -> None:
    answer = client.post("/v1/predict", files=form(pictures | {"x.png": b"x"}), headers={"x-request-id": "told"})
    ood = sum(row.get("is_ood", False) for row in verdicts(answer))
    while (entry := running.event("request"))["request_id"] != "told":
        pass
    assert entry.items() >= {"path": "/v1/predict", "method": "POST", "status": 200, "images": 25, "ood": ood}.items()
    assert entry["ms"] > 0 and entry["level"] == "info" and entry["time"].endswith("Z")
    assert not any("x.png" in line for line in running.lines)  # names of images are nobody's business


def test_a_slow_body_is_given_up(locked: Running) -> None:
    head = f"POST /v1/predict HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\nContent-Length: 99\r\n\r\n"
    with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as slow:
        slow.sendall(head.encode() + b"a few bytes")
        answer = slow.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 408 ") and "did not arrive within 1 seconds" in answer
    assert "connection: close" in answer.lower()


def test_slow_headers_are_given_up(locked: Running) -> None:
    for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
        with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as slow:
            slow.sendall(sent)
            assert slow.makefile("rb").read().startswith(b"HTTP/1.1 408 ")


def test_endless_headers_are_given_up(locked: Running) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        answer = b""
        try:
            for _ in range(1000):
                endless.sendall(b"X-More: " + b"x" * 8000 + b"\r\n")
        except OSError:
            pass
        else:
            answer = endless.makefile("rb").read()
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")
    assert httpx.get(f"{locked.url}/healthz", timeout=60).status_code == 200


def asked(port: int, request: bytes) -> bytes:
    """All that the service answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read()


def test_one_connection_too_many_may_ask_for_health_alone(locked: Running) -> None:
    """A client may hold six of eight connections."""
    crowd = [socket.create_connection(("127.0.0.1", locked.port), timeout=30) for _ in range(6)]
    try:
        refused = asked(locked.port, f"GET /v1/detector HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEY}\r\n\r\n".encode())
        healthy = asked(locked.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    finally:
        for one in crowd:
            one.close()
    assert refused.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1" in refused
    assert healthy.startswith(b"HTTP/1.1 200 ") and b"connection: close" in healthy


def test_connections_far_too_many_are_turned_away_unheard(locked: Running) -> None:
    crowd = [socket.create_connection(("127.0.0.1", locked.port), timeout=30) for _ in range(8 + 32)]
    try:
        assert asked(locked.port, b"").startswith(b"HTTP/1.1 429 ")
    finally:
        for one in crowd:
            one.close()


@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"POST /v1/predict HTTP/1.1", b"401"),  # it has no key
        (b"GET /healthz HTTP/1.1", b"200"),
        (b"GET /nothing HTTP/1.1", b"401"),
    ],
)
def test_a_body_that_nobody_waits_for_holds_no_connection(locked: Running, start: bytes, status: bytes) -> None:
    """Its first byte is sent and no other, and still the answer ends with the connection."""
    for length in (b"Content-Length: 9999", b"Transfer-Encoding: chunked"):
        answer = asked(locked.port, start + b"\r\nHost: x\r\n" + length + b"\r\n\r\n1")
        assert answer.startswith(b"HTTP/1.1 " + status) and b"connection: close" in answer


def test_a_connection_is_kept_for_the_next_request(client: httpx.Client, pictures: dict[str, bytes]) -> None:
    for _ in range(2):
        answer = client.post("/v1/predict", content=pictures["00.png"], headers={"content-type": "image/png"})
        assert answer.status_code == 200 and "connection" not in answer.headers


def test_a_service_without_a_key_answers_under_its_own_names_only(exported: Path, client: httpx.Client) -> None:
    def status(**headers: str) -> int:
        return client.get("/v1/detector", headers=headers).status_code

    host = str(client.base_url).removeprefix("http://").rstrip("/")
    assert status(host="rebound.example:8000") == 421 and status(host="127.0.0.1.rebound.example") == 421
    assert client.get("/healthz", headers={"host": "rebound.example"}).status_code == 200
    assert status(host=host, origin=f"http://{host}") == 200
    assert status(host=host, origin="http://rebound.example") == status(host=host, origin="null") == 403
    with serving(exported, "--threads", 1, "--host-name", "Macs.internal") as named:
        for name, expected in (("macs.internal:80", 200), ("other.internal", 421)):
            assert httpx.get(f"{named.url}/v1/detector", headers={"host": name}).status_code == expected


def test_what_is_said_twice_or_oddly_is_refused(client: httpx.Client, pictures: dict[str, bytes]) -> None:
    def ask(query: str, *headers: tuple[str, str]) -> httpx.Response:
        kind = ("content-type", "image/png")
        return client.post(f"/v1/predict?{query}", content=pictures["00.png"], headers=[kind, *headers])

    assert ask("threshold=0.5").status_code == 200
    assert "given more than once" in ask("threshold=0.5&threshold=0.1").json()["error"]
    assert "given more than once" in ask("", ("content-type", "image/jpeg")).json()["error"]
    for odd in ("1_0", "0x1", "nan", "inf", "%D9%A1", "1e", ""):
        assert ask(f"threshold={odd}").status_code == 422, odd


def test_what_is_not_http_gets_a_400(locked: Running) -> None:
    with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as other:
        other.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert other.makefile("rb").read().startswith(b"HTTP/1.1 400 ")


def test_a_client_that_hangs_up_is_forgotten(
    running: Running, client: httpx.Client, pictures: dict[str, bytes]
) -> None:
    content = pictures["00.png"]
    kind = "Host: localhost\r\nContent-Type: image/png"
    head = f"POST /v1/predict HTTP/1.1\r\n{kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    for sent in (head.encode() + content, head.encode() + content[:20]):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", running.port)) as hasty:
                hasty.sendall(sent)
    gone = 0
    while gone < 20:
        gone += running.event("request")["status"] == 499
    (row,) = verdicts(client.post("/v1/predict", files=form({"a.png": content})))
    assert row["name"] == "a.png"
    assert "\nmacs_buffered_bytes 0.0\n" in client.get("/metrics").text


def test_an_error_inside_becomes_a_sentence(exported: Path) -> None:
    """A fault that the routes do not expect, put into a real application."""
    from starlette.testclient import TestClient

    from macs.serve.app import create_app

    app = create_app(exported)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as inside:
        app.state.service.watch.detector = None
        answer = inside.get("/v1/detector")
    assert answer.status_code == 500
    assert json.loads(answer.content)["error"] == "The service failed on this request; its log says why."
