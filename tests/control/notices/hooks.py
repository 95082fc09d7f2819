"""A webhook that listens here, and waiting for what it hears."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 60.0


@contextmanager
def serve_web(codes: list[int], port: int = 0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook that answers with these codes, then with 200; and the documents it was sent."""
    heard: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(codes.pop(0) if codes else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", heard
        server.shutdown()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)
