"""The program of the S3 server: moto's, which listens at a port that can be closed and opened while the data stay.

    python s3_program.py PORT

SIGUSR1 closes the port, SIGUSR2 opens it again.
"""

from __future__ import annotations

import signal
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server


def main(port: int) -> None:
    """Serve until a signal ends the program."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    application = DomainDispatcherApplication(create_backend_app)
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
    main(int(sys.argv[1]))
