"""The accounts of `accounts.py` over HTTP, from any process: ``GET /`` has all of them, ``GET /ann`` has one.

``POST /ann?cents=5`` pays in, and answers when the account has it.
Start the graph with ``cues-kafka run examples/accounts.py:graph``, then run ``python -m examples.accounts_http 8000``.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cues_kafka import Kafka, connect
from examples.accounts import Event, graph

client = connect(Kafka("localhost:9092"), graph)
accounts = client.table("accounts", "accounts")


class Handler(BaseHTTPRequestHandler):
    """Answers from the table; many requests at a time."""

    def do_GET(self) -> None:
        """All accounts, or one."""
        name = unquote(urlsplit(self.path).path).strip("/")
        if not name:
            self.answer(200, dict(accounts.items()))
        elif (cents := accounts.get(name)) is None:
            self.answer(404, {"error": f"there is no account {name!r}"})
        else:
            self.answer(200, {name: cents})

    def do_POST(self) -> None:
        """Pay in; the answer has this payment."""
        url = urlsplit(self.path)
        cents = parse_qs(url.query).get("cents", [""])[0]
        if not cents.isdecimal():
            return self.answer(400, {"error": "say how much: POST /ann?cents=5"})
        accounts.wait_for(client.send("bank.events", Event(unquote(url.path).strip("/"), int(cents))))
        return self.do_GET()

    def answer(self, status: int, body: Any) -> None:
        """Send JSON."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


if __name__ == "__main__":
    with client, ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
