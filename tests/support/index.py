"""A package index on the loopback interface, for everything that goes wrong with a download."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import mmap
import os
import re
import ssl
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

from build_hooks.bases.index import session

if TYPE_CHECKING:
    import pytest


@dataclasses.dataclass
class Answer:
    """What is sent for a range of a wheel; a ``body`` that is short is one that is cut off.

    ``stall``: what is waited for, half a minute at most, before the last bytes are sent.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    stall: threading.Event | None = None


@dataclasses.dataclass
class Index:
    """Serves wheels as a simple index.

    ``truncate``: how many bytes of each file are sent; ``metadata``: whether they lie beside the
    wheels (PEP 658); ``ranges``: whether ranges are honoured; ``spoil``: changes what is sent for
    the n-th range that is asked for, from 1; ``credentials``: ``user:password`` that is asked for;
    ``moved``: whether wheels are redirected to where they are.
    """

    url: str
    wheels: dict[str, bytes | mmap.mmap] = dataclasses.field(default_factory=dict)
    beside: dict[str, bytes] = dataclasses.field(default_factory=dict)
    hashes: bool = True
    truncate: int | None = None
    metadata: bool = False
    ranges: bool = True
    spoil: Callable[[Answer, int], Answer] | None = None
    credentials: str | None = None
    moved: bool = False
    requests: list[str] = dataclasses.field(default_factory=list)
    # The sizes of the ranges of wheels that were sent.
    parts: list[int] = dataclasses.field(default_factory=list)

    def add(self, path: Path) -> None:
        with path.open("rb") as file:
            # A real wheel need not fit into memory, where several tests run.
            self.wheels[path.name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with zipfile.ZipFile(path) as archive:
            (member,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            self.beside[f"{path.name}.metadata"] = archive.read(member)

    def page(self) -> bytes:
        """Return the project page of vllm."""
        links = []
        for name, data in sorted(self.wheels.items()):
            digest = f"#sha256={hashlib.sha256(data).hexdigest()}" if self.hashes else ""
            beside = ' data-core-metadata="true"' if self.metadata else ""
            links.append(f'<a href="/files/{name}{digest}"{beside}>{name}</a>')
        return "<!DOCTYPE html><html><body>{}</body></html>".format("\n".join(links)).encode()

    def part(self, data: bytes | mmap.mmap, wanted: str) -> Answer:
        """Answer a request for a range."""
        parsed = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted)
        assert parsed, wanted
        first, last = parsed.groups()
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last), len(data) - 1) if first else len(data) - 1
        body = data[start : end + 1]
        self.parts.append(len(body))
        headers = {
            "Content-Range": f"bytes {start}-{end}/{len(data)}",
            "Content-Length": str(len(body)),
            "ETag": f'"{len(data)}"',
        }
        answer = Answer(206, headers, body)
        return self.spoil(answer, len(self.parts)) if self.spoil else answer


@contextmanager
def serve(context: ssl.SSLContext | None = None) -> Iterator[Index]:
    """Run an index on a free port, over TLS if there is a context for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            # To a proxy, a client names the whole address.
            path = re.sub("^http://[^/]+", "", self.path)
            index.requests.append(self.path)
            name = path.rsplit("/", 1)[-1]
            wanted = self.headers["Range"]
            if not self._allowed():
                self._send(Answer(401, {"WWW-Authenticate": 'Basic realm="index"'}, b""))
            elif path == "/simple/vllm/":
                self._send(Answer(200, {"Content-Type": "text/html"}, index.page()))
            elif index.metadata and name in index.beside:
                self._send(Answer(200, {}, index.beside[name]))
            elif name not in index.wheels:
                self.send_error(404)
            elif index.moved and path.startswith("/files/"):
                self._send(Answer(302, {"Location": f"/moved/{name}"}, b""))
            elif index.ranges and wanted:
                self._send(index.part(index.wheels[name], wanted))
            else:
                data = index.wheels[name]
                headers = {"Content-Length": str(len(data))}
                if index.ranges:
                    headers["Accept-Ranges"] = "bytes"
                self._send(Answer(200, headers, data[: index.truncate]))

        def _allowed(self) -> bool:
            if index.credentials is None:
                return True
            expected = base64.b64encode(index.credentials.encode()).decode()
            return self.headers["Authorization"] == f"Basic {expected}"

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET" and answer.stall:
                self.wfile.write(answer.body[:-9])
                answer.stall.wait(30)
                self.wfile.write(answer.body[-9:])
            elif self.command == "GET":
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            # A client that has had enough closes its end.
            pass

    server = Server(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    index = Index(f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}/simple")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def use(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Set pip up to know this index and no other, and an empty cache of wheels."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith(("_proxy", "_ca_bundle")):
            monkeypatch.delenv(name)
    for name, value in settings(url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    session.settings.cache_clear()


def settings(url: str) -> dict[str, str]:
    """Return the variables that make pip know this index and no other."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": url,
        "PIP_RETRIES": "0",
        "PIP_RESUME_RETRIES": "0",
    }
