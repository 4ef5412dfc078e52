"""A package index on the loopback interface, for everything that goes wrong with a download."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class Index:
    """Serves wheels as a simple index; ``truncate``: how many bytes of each file are sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.wheels: dict[str, bytes] = {}
        self.hashes = True
        self.truncate: int | None = None
        self.requests: list[str] = []

    def add(self, path: Path) -> None:
        self.wheels[path.name] = path.read_bytes()

    def page(self) -> bytes:
        """Return the project page of vllm."""
        links = []
        for name, data in sorted(self.wheels.items()):
            digest = f"#sha256={hashlib.sha256(data).hexdigest()}" if self.hashes else ""
            links.append(f'<a href="/files/{name}{digest}">{name}</a>')
        return "<!DOCTYPE html><html><body>{}</body></html>".format("\n".join(links)).encode()


@contextmanager
def serve() -> Iterator[Index]:
    """Run an index on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requests.append(self.path)
            name = self.path.rsplit("/", 1)[-1]
            if self.path == "/simple/vllm/":
                self._send(index.page(), "text/html", None)
            elif self.path.startswith("/files/") and name in index.wheels:
                self._send(index.wheels[name], "application/octet-stream", index.truncate)
            else:
                self.send_error(404)

        def _send(self, data: bytes, kind: str, length: int | None) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:length])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = Index(f"http://127.0.0.1:{server.server_port}/simple")
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
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
