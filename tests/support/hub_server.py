"""A hub on this machine: what `huggingface_hub` asks of the Hugging Face hub to push a model and to load it again.

It keeps repositories in memory, with a commit for each push, and has the hub's two kinds of files: small ones, which
come with the commit, and large ones (LFS), which are uploaded before it. `fault` makes its answers wrong.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

LARGE = (".safetensors", ".onnx")
LICENSES = {"apache-2.0", "mit", "cc-by-nc-4.0", "unknown", "other"}  # some of those that the hub knows


@dataclass
class Hub:
    """The repositories, and what was asked."""

    url: str = ""
    commits: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)  # repository -> commit -> files
    heads: dict[str, dict[str, str]] = field(default_factory=dict)  # repository -> branch -> commit
    uploads: dict[str, bytes] = field(default_factory=dict)  # SHA-256 -> content
    asked: list[str] = field(default_factory=list)  # method and path of each request
    fault: Callable[[str, bytes], "Answer | None"] = lambda name, content: None  # for the content of files

    def commit(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """Add a commit with these files besides those of the commit before."""
        heads = self.heads.setdefault(repo, {})
        kept = self.commits.setdefault(repo, {}).get(heads.get(branch, heads.get("main", "")), {})
        tree = kept | files
        made = hashlib.sha1(repr((repo, len(self.commits[repo]), sorted(tree.items()))).encode()).hexdigest()
        self.commits[repo][made] = tree
        heads[branch] = made
        return made

    def at(self, repo: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.heads.get(repo, {}).get(revision, revision)
        return (commit, self.commits[repo][commit]) if commit in self.commits.get(repo, {}) else None


@dataclass
class Answer:
    """A wrong answer for a file: a status, or a body that need not be as long as was announced."""

    status: int = 200
    body: bytes = b""
    announced: int | None = None  # None: the body ends where the connection does
    of_head: int | None = None  # the size that the answer to HEAD gives
    location: str | None = None  # where to look instead; empty: here again


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            handle(self, hub, "HEAD")

        def do_GET(self) -> None:
            handle(self, hub, "GET")

        def do_POST(self) -> None:
            handle(self, hub, "POST")

        def do_PUT(self) -> None:
            handle(self, hub, "PUT")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield hub
        server.shutdown()


def handle(request: BaseHTTPRequestHandler, hub: Hub, method: str) -> None:
    path = unquote(urlsplit(request.path).path)
    hub.asked.append(f"{method} {path}")
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
        return give_file(request, hub, method, *match.groups())
    if method == "PUT" and (match := re.fullmatch(r"/upload/(\w+)", path)):
        same = hashlib.sha256(body).hexdigest() == match[1]
        hub.uploads[match[1]] = body
        return answer(request, 200 if same else 400, {})
    if method == "POST":
        return post(request, hub, path, body)
    if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
        found = hub.at(match[1], match[2] or "main")
        if found is not None:
            return answer(request, 200, {"id": match[1], "sha": found[0], "siblings": []})
    return missing(request, "RepoNotFound")


def post(request: BaseHTTPRequestHandler, hub: Hub, path: str, body: bytes) -> None:  # noqa: PLR0911 - one per route
    if path == "/api/repos/create":
        asked = json.loads(body)
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in hub.commits:
            return answer(request, 409, {"error": "You already created this model repo", "url": f"{hub.url}/{repo}"})
        hub.commit(repo, {".gitattributes": b""})
        return answer(request, 200, {"url": f"{hub.url}/{repo}"})
    if path == "/api/validate-yaml":
        front = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
        if front.get("license", "mit") in LICENSES:
            return answer(request, 200, {"errors": [], "warnings": []})
        return answer(request, 400, {"errors": [{"message": '"license" must be one of [...]'}], "warnings": []})
    if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/(.+)", path):
        hub.heads[match[1]].setdefault(match[2], hub.heads[match[1]]["main"])
        return answer(request, 200, {})
    if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/(.+)", path):
        files = [
            {"path": one["path"], "uploadMode": "lfs" if one["path"].endswith(LARGE) else "regular"}
            for one in json.loads(body)["files"]
        ]
        return answer(request, 200, {"files": [one | {"shouldIgnore": False, "oid": None} for one in files]})
    if re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
        objects = [
            one | {"actions": {"upload": {"href": f"{hub.url}/upload/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        return answer(request, 200, {"transfer": "basic", "objects": objects})
    if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/(.+)", path):
        files_: dict[str, bytes] = {}
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files_[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files_[value["path"]] = hub.uploads[value["oid"]]
        oid = hub.commit(match[1], files_, match[2])
        return answer(request, 200, {"commitUrl": f"{hub.url}/{match[1]}/commit/{oid}", "commitOid": oid})
    return missing(request, "RepoNotFound")


def give_file(request: BaseHTTPRequestHandler, hub: Hub, method: str, repo: str, revision: str, name: str) -> None:
    if repo not in hub.commits:
        return missing(request, "RepoNotFound")
    found = hub.at(repo, revision)
    if found is None:
        return missing(request, "RevisionNotFound")
    commit, tree = found
    if name not in tree:
        return missing(request, "EntryNotFound", commit)
    content = tree[name]
    wrong = hub.fault(name, content)
    if wrong is not None and wrong.status != 200:
        headers = {} if wrong.location is None else {"Location": wrong.location or request.path}
        return answer(request, wrong.status, {"error": "as the test wants"}, headers)
    etag = hashlib.sha256(content).hexdigest()
    if not name.endswith(LARGE):
        etag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    begun = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    start = int(begun[1]) if begun and wrong is None else 0
    request.send_response(206 if start else 200)
    request.send_header("ETag", f'"{etag}"')
    request.send_header("X-Repo-Commit", commit)
    body, length = content[start:], len(content) - start
    if wrong is not None and method == "GET":
        body = wrong.body
        length = -1 if wrong.announced is None else wrong.announced
    elif wrong is not None and wrong.of_head is not None:
        length = wrong.of_head
    if start:
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if length >= 0:
        request.send_header("Content-Length", str(length))
    if length != len(body) or wrong is not None:
        request.send_header("Connection", "close")
        request.close_connection = True
    request.end_headers()
    if method == "GET":
        request.wfile.write(body)
    return None


def missing(request: BaseHTTPRequestHandler, code: str, commit: str = "") -> None:
    headers = {"X-Error-Code": code, "X-Error-Message": code} | ({"X-Repo-Commit": commit} if commit else {})
    return answer(request, 404, {"error": code}, headers)


def answer(
    request: BaseHTTPRequestHandler, status: int, value: dict[str, Any], headers: dict[str, str] | None = None
) -> None:
    body = json.dumps(value).encode()
    request.send_response(status)
    for name, text in (headers or {}).items():
        request.send_header(name, text)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(body)
