"""A Kafka broker and a schema registry in containers, for tests; the extra ``testing-containers``.

Each is started by `start` and removed by `stop`, and is a context manager::

    with KafkaContainer() as broker, RegistryContainer() as registry:
        cluster = Kafka(broker.bootstrap, registry=Registry(registry.url))

They are built on testcontainers, and differ from its own classes in this:

- Ports are bound to 127.0.0.1 alone. testcontainers binds them on all interfaces.
- The container that testcontainers starts to remove others (Ryuk) is not used. Each container carries the identity of
  its process; the next start on this machine removes the containers of processes that have died.
- The broker has a listener for itself beside that for clients. With one listener transactions do not complete, because
  the broker cannot reach itself by the address that clients use.
"""

from __future__ import annotations

import logging
import os
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from cues_kafka.brokers.local import probe
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.local.properties import COMMON, ONE_NODE
from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.extras import TESTCONTAINERS, missing

if TYPE_CHECKING:
    from docker.models.containers import Container as Started
    from testcontainers.core.container import DockerContainer

KAFKA_IMAGE: Final = "apache/kafka:4.3.1"
REGISTRY_IMAGE: Final = "apicurio/apicurio-registry-mem:2.6.13.Final"
LOOPBACK: Final = "127.0.0.1"
OWNER: Final = "cues-kafka.testing.owner"
"""The label of a container with the identity of the process that started it."""
SOCKET: Final = "http+docker://localhost"
"""What the client makes of the address of an engine's socket on this machine."""
ATTEMPTS: Final = 3
"""Starts with new ports: another program may take a free port before the engine binds it."""
POLL_S: Final = 0.1
ANSWER_S: Final = 2.0
LOG_LINES: Final = 30

log = logging.getLogger("cues_kafka.testing")


class ServerContainer(ABC):
    """
    A server in a container of the Docker engine that this machine's client finds (``DOCKER_HOST``, contexts).

    Args:
        image: its image, which the engine pulls if it does not have it.
        timeout_s: for a start, without the pull.
    """

    what = "A server"

    def __init__(self, image: str, *, timeout_s: float = 120.0) -> None:
        self.image: str = image
        self.timeout_s: float = timeout_s
        self.port: int = 0
        self._container: DockerContainer | None = None

    @abstractmethod
    def prepare(self, container: DockerContainer, port: int) -> None:
        """Give the container its settings, and publish its server at this port."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server serves at `port`."""

    def start(self) -> Self:
        """
        Remove containers that killed processes left, start, and wait until the server answers.

        Raises:
            ConfigError: testcontainers is not installed, or there is no Docker engine on this machine.
            BrokerError: the image cannot be had, or the server does not start.
        """
        for _ in range(ATTEMPTS - 1):
            if self._started_once(last=False):
                return self
        self._started_once(last=True)
        return self

    def stop(self) -> None:
        """Kill the container, and remove it with its data."""
        if self._container is not None:
            container, self._container = self._container, None
            container.stop()

    def _started_once(self, *, last: bool) -> bool:
        """Start and wait; False if another program has taken the port meanwhile."""
        self._container = container = _open(self.image)
        import docker.errors  # noqa: PLC0415 - an extra; `_open` has said where it is missing

        [self.port] = free_ports(1)
        try:
            sweep(container.get_docker_client().client)
            self.prepare(container, self.port)
            container.with_kwargs(labels={OWNER: identity(os.getpid())})
            with _without_ryuk():
                container.start()
            self._wait(container.get_wrapped_container())
        except docker.errors.DockerException as error:
            self._discard()
            if not last and ("already allocated" in str(error) or "already in use" in str(error)):
                return False
            raise BrokerError(
                f"{self.what} did not start from the image {self.image}: {error}\n"
                f"If the engine cannot pull the image, name one that it has."
            ) from error
        except BaseException:
            self._discard()
            raise
        return True

    def _discard(self) -> None:
        import docker.errors  # noqa: PLC0415 - as above

        with suppress(docker.errors.DockerException):  # what is raised already says more
            self.stop()

    def _wait(self, container: Started) -> None:
        deadline = time.monotonic() + self.timeout_s
        while not self.answers():
            container.reload()
            if container.status not in ("created", "running"):
                reason = "ended"
            elif time.monotonic() > deadline:
                reason = f"did not answer at {LOOPBACK}:{self.port} within {self.timeout_s:g} s"
            else:
                time.sleep(POLL_S)  # no event tells that a server serves
                continue
            said = container.logs(tail=LOG_LINES).decode("utf-8", "replace")
            raise BrokerError(f"{self.what} in a container of {self.image} {reason}. Its log ends with:\n{said}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class KafkaContainer(ServerContainer):
    """
    A broker with transactions, on a port of this machine.

    Attributes:
        bootstrap: ``bootstrap.servers``, once it has started.
    """

    what = "A broker"

    def __init__(self, image: str = KAFKA_IMAGE, *, timeout_s: float = 120.0) -> None:
        super().__init__(image, timeout_s=timeout_s)

    @property
    def bootstrap(self) -> str:
        """The address of the broker, as ``bootstrap.servers``."""
        return f"{LOOPBACK}:{self.port}"

    def prepare(self, container: DockerContainer, port: int) -> None:
        """Clients come through the published port; the broker and its controller stay within the container."""
        settings = {
            **COMMON,
            **ONE_NODE,
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093,INTERNAL://localhost:9094",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port},INTERNAL://localhost:9094",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "log.dirs": "/var/lib/kafka/data",
        }
        for name, value in settings.items():
            container.with_env(f"KAFKA_{name.upper().replace('.', '_')}", value)
        _publish(container, 9092, port)

    def answers(self) -> bool:
        """It knows itself, and has coordinators of groups and of transactions."""
        view = probe.look(self.port, timeout_s=ANSWER_S)
        return bool(view and view.nodes) and all(
            probe.has_coordinator(self.port, kind, timeout_s=ANSWER_S) for kind in (probe.GROUP, probe.TRANSACTION)
        )


class RegistryContainer(ServerContainer):
    """
    A schema registry that speaks Confluent's protocol, on a port of this machine; its schemas are in its memory.

    Args:
        image: by default Apicurio Registry.
        path: where it speaks the protocol.
        timeout_s: for a start, without the pull.

    Attributes:
        url: for `Registry(url)`, once it has started.
    """

    what = "A schema registry"

    def __init__(
        self, image: str = REGISTRY_IMAGE, *, path: str = "/apis/ccompat/v7", timeout_s: float = 120.0
    ) -> None:
        super().__init__(image, timeout_s=timeout_s)
        self.path = path

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://{LOOPBACK}:{self.port}{self.path}"

    def prepare(self, container: DockerContainer, port: int) -> None:
        """It listens on 8080, as Apicurio's image does."""
        _publish(container, 8080, port)

    def answers(self) -> bool:
        """It lists its subjects."""
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=ANSWER_S) as answer:  # noqa: S310 - HTTP
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _open(image: str) -> DockerContainer:
    """
    A container that is not started, and a client of the engine.

    Raises:
        ConfigError: testcontainers is not installed, or no Docker engine of this machine answers.
    """
    try:
        import docker.errors  # noqa: PLC0415 - an extra
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise missing("A server in a container", TESTCONTAINERS, error=error) from None
    try:
        container = DockerContainer(image)
        client = container.get_docker_client().client
        client.ping()
    except docker.errors.DockerException as error:
        raise ConfigError(f"No Docker engine answers: {error}. Start one, or set DOCKER_HOST to its socket.") from None
    address = client.api.base_url
    if address != SOCKET:
        client.close()
        raise ConfigError(
            f"The Docker engine at {address} may be on another machine, whose loopback is not this one's. "
            "Set DOCKER_HOST to the socket of an engine of this machine, or CUES_KAFKA_BOOTSTRAP to a running broker."
        )
    return container


def _publish(container: DockerContainer, inner: int, port: int) -> None:
    """Bind on loopback alone. `with_bind_ports` takes no address, though the client underneath does."""
    ports: dict[str, Any] = container.ports
    ports[f"{inner}/tcp"] = (LOOPBACK, port)


@contextmanager
def _without_ryuk() -> Iterator[None]:
    """For one start: it would be one more container, with a port on all interfaces and the engine's socket."""
    from testcontainers.core.config import testcontainers_config as config  # noqa: PLC0415 - an extra

    before = config.ryuk_disabled
    config.ryuk_disabled = True
    try:
        yield
    finally:
        config.ryuk_disabled = before


# ---- containers of processes that have died


def sweep(client: Any) -> None:
    """Remove the containers that processes of this machine have started and not removed before they died."""
    import docker.errors  # noqa: PLC0415 - `_open` has imported it

    for container in client.containers.list(all=True, filters={"label": OWNER}, ignore_removed=True):
        if left_behind(container.labels[OWNER]):
            log.info("container_removed name=%r reason=%r", container.name, "its process has died")
            with suppress(docker.errors.NotFound, docker.errors.APIError):  # another process removes it, too
                container.remove(force=True, v=True)


def identity(pid: int) -> str:
    """
    What no other process has: the kernel's start, the namespace of process ids, the id, and when the process began.

    Raises:
        OSError: there is no such process.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    namespace = Path("/proc/self/ns/pid").readlink()
    # The 22nd field; the second one, the name in parentheses, may hold spaces.
    began = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    return f"{boot}/{namespace}/{pid}/{began}"


def left_behind(owner: str) -> bool:
    """Whether this identity is that of a process of this machine, seen from here, that has ended."""
    *where, pid, _ = owner.split("/")
    try:
        now = identity(int(pid))
    except OSError:
        *here, _, _ = identity(os.getpid()).split("/")
        return where == here
    *here, _, _ = now.split("/")
    return where == here and now != owner
