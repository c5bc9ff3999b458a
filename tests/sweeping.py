"""Topics of tests that are over are deleted, some tests at a time."""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

TESTS = 10
"""How many are over before their topics go: a look at a cluster costs the same for one test as for ten."""


class Sweeper:
    """
    Deletes the topics of tests that are over.

    Each topic of two partitions costs an idle broker 0.12 ms of processor time a second, and each new client 20 us,
    since it asks for all topics; a deletion costs 0.5 ms once.
    """

    def __init__(self, bootstrap: str) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._over: list[str] = []

    def over(self, prefix: str) -> None:
        """No process of the test with this prefix uses its topics any more."""
        self._over.append(prefix)
        if len(self._over) == TESTS:
            self._sweep()

    def _sweep(self) -> None:
        prefixes, self._over = tuple(self._over), []
        with suppress(KafkaException):  # a broker that does not answer is for the next test to tell
            if names := [topic for topic in self._client.list_topics(timeout=10).topics if topic.startswith(prefixes)]:
                wait(self._client.delete_topics(names).values(), 30)  # no client goes while answers are on their way
