"""A hub on loopback: a real HTTP server that serves files in the layout of the Hugging Face hub.

It can break off, stall, lie about content and size, and ask for a token; it remembers requests.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" + "0" * 34
LARGE = 4096  # files above this are named by SHA-256, as the hub does with its large ones


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    range: str | None
    token: str | None


@dataclass
class Hub:
    """What it serves, how it misbehaves, and what it saw."""

    files: dict[str, bytes] = field(default_factory=dict)  # "org/repo/path" -> content
    cuts: list[int] = field(default_factory=list)  # bytes after which the next answers break off
    stall_after: int | None = None  # bytes after which an answer waits for `go_on`
    lies: dict[str, bytes] = field(default_factory=dict)  # other bytes under the same hash
    sizes: dict[str, int] = field(default_factory=dict)  # another size than the true one
    token: str | None = None  # who does not send it gets 401
    gated: bool = False
    redirects: bool = False  # large files come from another host, as the real hub does it
    requests: list[Request] = field(default_factory=list)
    n_sent: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def gets(self) -> list[Request]:
        """Downloads; the client's library also asks for other things now and then."""
        return [one for one in self.requests if one.method == "GET" and "/resolve/" in one.path]


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def digest_of(content: bytes) -> str:
    if len(content) > LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """The hub remembers; it does not chatter."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.hub
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ") or None
        hub.requests.append(Request(self.command, self.path, self.headers["Range"], token))
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        name = f"{found[1]}/{found[3]}" if found else self.path.removeprefix("/store/")
        if name in hub.files and not found:
            self._serve(name)  # the store's addresses are secret enough for everybody
        elif hub.token is not None and token != hub.token:
            self._refuse(401, "RepoNotFound")
        elif hub.gated:
            self._refuse(403, "GatedRepo")
        elif name not in hub.files:
            self._refuse(404, "EntryNotFound")
        else:
            self._serve(name)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _redirect(self, name: str, truth: bytes) -> None:
        self.send_response(302)
        self.send_header(
            "Location", f"{self.hub.url.replace('127.0.0.1', 'localhost')}/store/{name}"
        )
        self.send_header("X-Linked-ETag", f'"{digest_of(truth)}"')
        self.send_header("X-Linked-Size", str(len(truth)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _serve(self, name: str) -> None:
        truth = self.hub.files[name]
        content = self.hub.lies.get(name, truth)
        if self.hub.redirects and len(truth) > LARGE and "/resolve/" in self.path:
            self._redirect(name, truth)
            return
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        large = "X-Linked-" if len(truth) > LARGE else ""
        self.send_header(f"{large}ETag", f'"{digest_of(truth)}"')
        if large or name in self.hub.sizes:
            self.send_header("X-Linked-Size", str(self.hub.sizes.get(name, len(truth))))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "GET":
            self._send(content[start:])

    def _send(self, body: bytes) -> None:
        hub = self.hub
        if hub.cuts and (n_allowed := hub.cuts.pop(0)) < len(body):
            body = body[:n_allowed]
            self.close_connection = True
        if hub.stall_after is not None and len(body) > hub.stall_after:
            self._write(body[: hub.stall_after])
            body = body[hub.stall_after :]
            hub.stalled.set()
            hub.go_on.wait()
        with suppress(ConnectionError):  # whoever asked may have left meanwhile
            self._write(body)

    def _write(self, body: bytes) -> None:
        self.wfile.write(body)
        self.wfile.flush()
        self.hub.n_sent += len(body)
