"""Apache Kafka in a container, for projects that use testcontainers (extra ``testing``)."""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.local.properties import COMMON, ONE_NODE
from cues_kafka.errors import BrokerError

if TYPE_CHECKING:
    from types import TracebackType

IMAGE = "apache/kafka-native:4.3.1"


def container_environment(port: int) -> dict[str, str]:
    """
    The environment of a broker that clients outside of the container reach at 127.0.0.1:`port`.

    It has two listeners. The transaction coordinator writes to partitions at the address that is advertised to
    *brokers*, and the outer address does not exist in the container: with one listener no transaction ends. All
    settings are given, because the image drops its default file if it sees one ``KAFKA_...``.
    """
    own = {
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,INTERNAL://localhost:9094,CONTROLLER://localhost:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},INTERNAL://localhost:9094",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    }
    return {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in (COMMON | ONE_NODE | own).items()}


class ApacheKafkaContainer:
    """
    One node of Apache Kafka in a container, with transactions, bound to 127.0.0.1.

    ::

        with ApacheKafkaContainer() as kafka:
            use(kafka.bootstrap)

    If Ryuk cannot be pulled, set ``TESTCONTAINERS_RYUK_DISABLED=true``.
    """

    def __init__(self, image: str = IMAGE, *, timeout_s: float = 60.0) -> None:
        """
        Args:
            image: an image of Apache Kafka, with a JVM or native.
            timeout_s: from the start of the container until the broker answers.
        """
        # It is an extra, and slow to import.
        DockerContainer = import_module("testcontainers.core.container").DockerContainer  # noqa: N806

        (self.port,) = free_ports(1)
        self._timeout_s = timeout_s
        self.container: Any = DockerContainer(image)
        for key, value in container_environment(self.port).items():
            self.container.with_env(key, value)
        # `with_bind_ports` would bind all interfaces.
        self.container.ports["9092/tcp"] = ("127.0.0.1", self.port)

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        """
        Start, and wait until it answers.

        Raises:
            BrokerError: it does not answer in time; the text holds the end of its log.
        """
        self.container.start()
        end = time.monotonic() + self._timeout_s
        while not probe.has_coordinator(self.port, probe.TRANSACTION):
            if time.monotonic() > end:
                output = b"\n".join(self.container.get_logs()).decode("utf-8", "replace")[-2000:]
                self.stop()
                raise BrokerError(f"Kafka in the container did not answer at {self.bootstrap}. Its log ends:\n{output}")
            time.sleep(0.1)  # a container has no event for "its broker serves"
        return self

    def stop(self) -> None:
        """Stop and remove the container."""
        self.container.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
