"""A server in place of Ironic or Placement that answers without end."""

import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import fixtures
import msgspec

from tests.unit.ironic import samples

_SPACES: Final = b" " * 65536
#: More bytes than any test reads, so that a test of a client without a limit fails, not hangs.
_MOST: Final = 2**30


class Endless(fixtures.Fixture):
    """An HTTP server on 127.0.0.1 with endless lists of nodes and endless bodies.

    A GET of /v1/nodes gets a page with one node, always with a further page. With ``pages`` "new"
    the node of each page is new, with "the same" it is not. Any other GET gets an endless body in
    the ``encoding`` "gzip" or "identity". ``asked`` has the paths of the requests, ``sent`` the
    number of bytes of endless bodies.
    """

    url: str

    def __init__(self, *, pages: str = "new", encoding: str = "identity") -> None:
        super().__init__()
        self.pages = pages
        self.encoding = encoding
        self.asked: list[str] = []
        self.sent = 0

    def _setUp(self) -> None:
        fixture = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fixture.asked.append(self.path)
                if urlsplit(self.path).path == "/v1/nodes":
                    fixture.send_page(self)
                else:
                    fixture.send_without_end(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def send_page(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer with a page of one node; its uuid is the marker of the next page."""
        query = parse_qs(urlsplit(handler.path).query)
        is_new = self.pages == "new" or "marker" not in query
        uuid = str(uuid4()) if is_new else query["marker"][0]
        body = msgspec.json.encode({"nodes": [samples.node(uuid=uuid)]})
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def send_without_end(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer with spaces, in chunks, until the client disconnects."""
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Content-Encoding", self.encoding)
        handler.end_headers()
        packer = zlib.compressobj(wbits=31)
        written = 0
        try:
            while written < _MOST:
                written += len(_SPACES)
                chunk = packer.compress(_SPACES) if self.encoding == "gzip" else _SPACES
                if chunk:
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.sent += len(chunk)
        except ConnectionError:
            handler.close_connection = True
