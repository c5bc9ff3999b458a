"""The program of the S3 server: moto's, which listens at a port that can be closed and opened while the data stay.

    python s3_program.py PORT [overwrites]

With `overwrites` it passes over `If-None-Match`, as stores do that have no conditional writes. SIGUSR1 closes the port,
SIGUSR2 opens it again.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server


def main(port: int, *, overwrites: bool) -> None:
    """Serve until a signal ends the program."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    served = DomainDispatcherApplication(create_backend_app)

    one_at_a_time = threading.Lock()

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if overwrites:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if "HTTP_IF_NONE_MATCH" not in environ:
            return served(environ, start_response)
        with one_at_a_time:  # S3 looks and puts in one step, and moto in two
            return [b"".join(served(environ, start_response))]

    server: BaseWSGIServer | None = None
    wanted = signal.SIGUSR2
    while True:
        if wanted == signal.SIGUSR2 and server is None:
            server = make_server("127.0.0.1", port, application, threaded=True, request_handler=MotoRequestHandler)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        elif wanted == signal.SIGUSR1 and server is not None:
            server.shutdown()
            server.server_close()
            server = None
        wanted = signal.Signals(signal.sigwait({signal.SIGUSR1, signal.SIGUSR2}))


if __name__ == "__main__":
    main(int(sys.argv[1]), overwrites="overwrites" in sys.argv[2:])
