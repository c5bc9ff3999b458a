"""Fetch the programs of servers before the tests run, side by side; those that are here cost nothing.

    python -m tests.servers.prefetch [--bridges]

A server that cannot be had is named, and the exit code stays 0: the tests that need it fail with the reason.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cues_kafka.errors import ConfigError
from tests.servers import activemq, artemis, mariadb, mosquitto, postgres, rabbitmq
from tests.servers.packages import ServerError

ALWAYS: dict[str, Callable[[], object]] = {
    "RabbitMQ": rabbitmq._files,
    "MariaDB": mariadb._files,
    "mosquitto": mosquitto._files,
    "PostgreSQL": postgres._programs,
}
"""What `make test` starts, the longest download first."""

BRIDGES: dict[str, Callable[[], object]] = {"ActiveMQ": activemq.class_path, "Artemis": artemis.artemis_jars}
"""What `make test-bridges` starts besides."""


def fetch(wanted: dict[str, Callable[[], object]]) -> list[str]:
    """Fetch these, and say which of them cannot be had, and why."""

    def reason(name: str) -> str:
        try:
            wanted[name]()
        except (ServerError, ConfigError) as error:
            return f"{name} cannot be had: {error}"
        return ""

    with ThreadPoolExecutor(len(wanted)) as pool:
        return [text for text in pool.map(reason, wanted) if text]


if __name__ == "__main__":
    for line in fetch(ALWAYS | BRIDGES if "--bridges" in sys.argv[1:] else ALWAYS):
        print(line, file=sys.stderr)
