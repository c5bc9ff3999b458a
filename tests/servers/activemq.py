"""ActiveMQ Classic, a JMS broker that speaks STOMP, for tests."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cues_kafka.brokers.local.java import NO_PERF_DATA, find_java
from tests.servers.packages import Programs, ServerError, unpacked
from tests.servers.server import Server

JARS = "usr/share/java"
NEEDED = (
    "activemq-broker", "activemq-client", "activemq-console", "activemq-jaas", "activemq-kahadb-store",
    "activemq-openwire-legacy", "activemq-protobuf", "activemq-stomp", "activeio-core", "geronimo-jms_1.1_spec",
    "geronimo-j2ee-management-1.1-spec", "geronimo-jta-1.2-spec", "hawtbuf", "jackson-annotations", "jackson-core",
    "jackson-databind", "slf4j-api", "xpp3",
)  # fmt: skip
FOR_CONFIGURATION = (
    "activemq-spring", "xbean-spring", "spring3-beans", "spring3-context", "spring3-core", "spring3-expression",
    "commons-logging",
)  # fmt: skip
"""What reads a configuration in XML, where there are users."""

MAIN = "org.apache.activemq.console.command.ShellCommand"
SETTINGS = {"brokerName": "tests", "useJmx": "false", "schedulePeriodForDestinationPurge": "0"}
ANSWER_S = 10.0
GREETING = b"CONNECT\naccept-version:1.2\nhost:tests\n\n\0"


class ActiveMq(Server):
    """
    An ActiveMQ Classic in a JVM; the system's, else the one of Debian's packages.

    What was sent as persistent, and was confirmed, is on the disk, whatever `durable` says. `settings` are options of
    its address, such as ``advisorySupport``.

    Attributes:
        heap: of its JVM. It holds messages in seven tenths of that, and makes publishers wait where more come.
    """

    kind = "activemq"
    patience_s = 90.0
    taken = "Address already in use"
    heap = "128m"

    def command(self) -> list[str]:
        settings = {**SETTINGS, **self.settings, "dataDirectory": str(self.data)}
        options = "&".join(f"{name}={value}" for name, value in settings.items())
        return [
            *jvm("ActiveMQ", self.heap), "-cp", class_path(), MAIN, "start",
            f"broker:(stomp://127.0.0.1:{self.port})?{options}",
        ]  # fmt: skip

    def environment(self) -> Mapping[str, str]:
        return java_environment(self)

    def template(self) -> None:
        return None

    def try_it(self) -> None:
        greet_stomp(self.port)

    def url(self, database: str = "") -> str:
        """The address of STOMP; a broker has no databases."""
        return f"stomp://127.0.0.1:{self.port}"


def jvm(who: str, heap: str) -> list[str]:
    """Java with options that make a small server start quickly."""
    java = find_java(who=who, otherwise="")
    return [str(java.program), f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", NO_PERF_DATA]


def java_environment(server: Server) -> dict[str, str]:
    """The environment of a JVM, which writes nowhere else."""
    return {"PATH": os.environ.get("PATH", ""), "HOME": str(server.data), "LC_ALL": "C.UTF-8", "JAVA_TOOL_OPTIONS": ""}


def greet_stomp(port: int) -> None:
    """
    Greet a broker as STOMP wants it; it answers with CONNECTED.

    Raises:
        OSError: it does not.
    """
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
        connection.sendall(GREETING)
        answer = connection.recv(4096)
    if not answer.startswith((b"CONNECTED", b"ERROR")):
        raise ConnectionError(f"it answered with {answer!r}")


@cache
def class_path(*, secured: bool = False) -> str:
    """The jars: the system's, else unpacked ones; `secured`: with those that read a configuration."""
    system = Path("/", JARS)
    needed = NEEDED + FOR_CONFIGURATION * secured
    if not (system / "activemq-broker.jar").exists():
        return unpacked_class_path(needed)
    return _joined(Programs(Path("/"), "system"), needed)


def unpacked_class_path(needed: tuple[str, ...] = NEEDED) -> str:
    """The jars of Debian's packages, also where the system has others."""
    return _joined(unpacked("activemq", f"{JARS}/activemq-broker.jar"), needed)


def _joined(programs: Programs, needed: tuple[str, ...]) -> str:
    """As Java wants it; what the system has already was not unpacked."""
    found = []
    for name in needed:
        places = [programs.root / JARS / f"{name}.jar", Path("/", JARS, f"{name}.jar")]
        jar = next((one for one in places if one.exists()), None)
        if jar is None:
            raise ServerError(f"{places[0]} is missing. Remove {programs.root}; the next run unpacks it again.")
        found.append(str(jar))
    return os.pathsep.join(found)
