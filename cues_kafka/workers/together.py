"""The health and the metrics of all workers of a supervisor, which it asks for through a socket file of each worker."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from cues_kafka.observe.http import FILE, Health
from cues_kafka.observe.metrics import Sample, from_json
from cues_kafka.workers.supervisor import Supervisor

ANSWER_S: Final = 2.0
"""How long a worker may take to answer. One that is frozen, or whose function holds the interpreter, takes longer."""


class _Connection(http.client.HTTPConnection):
    """To a socket file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(str(self._path))


class TogetherLook:
    """
    Looks at all workers of a supervisor.

    Args:
        graph: its name.
        workers: how many there are.
        directory: where their socket files are; only this user may read it.
    """

    def __init__(self, graph: str, workers: int, directory: Path) -> None:
        self._graph, self._directory = graph, directory
        self._numbers = range(1, workers + 1)

    def address(self, k: int) -> str:
        """Where worker k listens, as `listen` takes it."""
        return f"{FILE}{self._directory / str(k)}"

    def look(self, supervisor: Supervisor) -> Health:
        """Ask all workers side by side."""
        with ThreadPoolExecutor(len(self._numbers)) as pool:
            found = list(pool.map(self._ask, self._numbers))
        ill = [f"worker {k}: {why}" for k, one in zip(self._numbers, found, strict=True) for why in one.ill]
        if supervisor.gave_up is not None:
            ill.append("the supervisor gave up")
        unready = [f"worker {k}: {why}" for k, one in zip(self._numbers, found, strict=True) for why in one.unready]
        rows = [row for one in found for row in one.rows]
        return Health(tuple(ill), tuple(unready), (*rows, *self._own(supervisor, found)))

    def _own(self, supervisor: Supervisor, found: Sequence[Health]) -> Iterator[Sample]:
        for k, one in zip(self._numbers, found, strict=True):
            labels = {"graph": self._graph, "worker": str(k)}
            yield Sample("cues_kafka_worker_up", labels, float(bool(one.rows)))
            yield Sample("cues_kafka_worker_restarts_total", labels, supervisor.restarts[k])
            if not one.rows:  # else it says so itself
                yield Sample("cues_kafka_ready", labels, 0.0)

    def _ask(self, k: int) -> Health:
        connection = _Connection(self._directory / str(k))
        try:
            connection.request("GET", "/told")
            told: Any = json.loads(connection.getresponse().read())
        except TimeoutError:
            return Health(ill=(f"it has not answered for {ANSWER_S:g} s",))
        except (OSError, http.client.HTTPException, ValueError):  # it starts, or ended in this moment
            return Health(unready=("it is starting",))
        finally:
            connection.close()
        rows = tuple(from_json(row, str(k)) for row in told["rows"])
        return Health(tuple(told["ill"]), tuple(told["unready"]), rows)
