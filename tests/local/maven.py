"""A tiny Maven repository over HTTP, with jars that a test makes up."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lakehouse_dagster.local.engines import MavenJar


@dataclass
class MavenRepository:
    """What it serves, by path; ``requests`` lists the paths of jars asked for.

    ``cut_short`` paths end in the middle of the file, as a broken connection does; ``stalled``
    paths stay in the middle until the repository is closed.
    """

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cut_short: set[str] = field(default_factory=set)
    stalled: set[str] = field(default_factory=set)

    def add(self, artifact: str, content: bytes, *, served: bytes | None = None) -> MavenJar:
        """Put a jar into the repository; ``served`` differs from what its checksum promises."""
        jar = MavenJar("org.example", artifact, "1.0", hashlib.sha256(content).hexdigest())
        self.files[self.path(jar)] = content if served is None else served
        return jar

    @staticmethod
    def path(jar: MavenJar) -> str:
        """Where Maven repositories keep the jar."""
        return f"/{jar.group.replace('.', '/')}/{jar.artifact}/{jar.version}/{jar.file_name}"


@contextmanager
def maven_repository() -> Iterator[MavenRepository]:
    """Serve a repository on a free port until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = repository.files.get(self.path)
            if self.path.endswith(".jar"):
                repository.requests.append(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.path in repository.cut_short:
                content = content[: len(content) // 2]
                self.close_connection = True
            if self.path in repository.stalled:
                self.wfile.write(content[: len(content) // 2])
                closing.wait()
                return
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    closing = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    repository = MavenRepository(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield repository
    finally:
        closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
