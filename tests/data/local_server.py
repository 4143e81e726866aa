"""A server on this machine that stands in for those from which data sets are downloaded."""

import http.server
import threading
from contextlib import contextmanager


@contextmanager
def serving(folder):
    """Serve the files of a folder while the block runs, and yield the address, which ends in a slash."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
