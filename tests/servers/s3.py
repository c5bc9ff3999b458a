"""An S3 server for tests, which keeps its buckets in memory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from tests.servers.packages import ServerError
from tests.servers.server import POLL_S, Server

PROGRAM = Path(__file__).with_name("s3_program.py")
ANSWER_S = 10.0


class S3(Server):
    """
    The S3 of moto, in a process of its own.

    It has put, get, list, delete, uploads in several parts, and `If-None-Match: *`, which refuses to overwrite. It
    checks neither keys nor signatures. What it holds ends with its process: to test a target that is down and comes
    back with its data, use `refuse` and `accept`, or `pause` and `resume`.
    """

    kind = "s3"
    drops_rights = False

    overwrites = False

    def command(self) -> list[str]:
        return [sys.executable, str(PROGRAM), str(self.port), *(["overwrites"] if self.overwrites else [])]

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}

    def template(self) -> None:
        return None

    def try_it(self) -> None:
        self._ask("GET", "/")

    def refusals(self) -> tuple[type[Exception], ...]:
        return (OSError, HTTPException)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, Any]:
        """What `fsspec.filesystem("s3", **options)` needs to reach it."""
        return {"endpoint_url": self.endpoint, "key": "test", "secret": "test"}

    @property
    def storage_options(self) -> dict[str, str]:
        """What deltalake needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def url(self, database: str) -> str:
        """The address of a bucket."""
        return f"s3://{database}"

    def create_bucket(self, name: str) -> str:
        """Create an empty bucket, and return its address."""
        self._ask("PUT", f"/{name}")
        return self.url(name)

    def refuse(self) -> None:
        """Refuse connections, as if the server were away, until `accept`."""
        self._signal("SIGUSR1")
        self._until(answers=False)

    def accept(self) -> None:
        """Answer again after `refuse`, with all buckets."""
        self._signal("SIGUSR2")
        self._until(answers=True)

    def make_ready(self) -> None:
        if self.running:
            self.resume()
            self.accept()
        else:
            self.start()

    def _until(self, *, answers: bool) -> None:
        end = time.monotonic() + ANSWER_S
        while (self._refusal() is None) is not answers:
            if time.monotonic() > end:
                raise ServerError(f"After {ANSWER_S:.0f} s, s3 does {'not answer' if answers else 'still answer'}.")
            time.sleep(POLL_S)

    def _ask(self, method: str, path: str) -> None:
        """
        Send a request without a body.

        Raises:
            OSError: the server is away, or says no.
        """
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, headers={"Host": f"127.0.0.1:{self.port}"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"{method} {path}: {answer.status} {answer.read(1000)!r}")
        finally:
            connection.close()


class OverwritingS3(S3):
    """The same without conditional writes: a second writer wins."""

    overwrites = True
