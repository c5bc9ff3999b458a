"""ActiveMQ Artemis, a JMS broker that speaks STOMP, AMQP 1.0 and MQTT, for tests."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from cues_kafka.brokers.local.jars import MAVEN_PLUGIN, Locked, Wanted, fetched
from cues_kafka.brokers.local.java import find_java
from cues_kafka.errors import ConfigError
from tests.servers.activemq import greet_stomp, java_environment, jvm
from tests.servers.packages import ServerError
from tests.servers.server import Server, prepared

VERSION = "2.44.0"
"""The newest one whose archive is on Maven Central: since 2.50 the project has another group, and no archive there."""
ARCHIVE = Wanted(
    f"ActiveMQ Artemis {VERSION}",
    f"apache-artemis-{VERSION}",
    {
        f"apache-artemis-{VERSION}-bin.tar.gz": Locked(
            "1030320a8d1af6376361cd750bef12ef3cf7babc7a363bc6097340961d1e3e29",
            46_299_075,
        )
    },
    "the pinned hash",
    maven=(f"{MAVEN_PLUGIN}:copy", f"-Dartifact=org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin"),
    ivy=("-ivy", str(Path(__file__).with_name("ivy_artemis.xml"))),
    types=("tar.gz",),
)
MAIN = "org.apache.activemq.artemis.core.server.embedded.Main"

SETTINGS = {
    "name": "tests",
    "persistence-enabled": "true",
    "security-enabled": "false",
    "journal-type": "NIO",
    "journal-file-size": "1M",
    "journal-min-files": "2",
    "max-disk-usage": "-1",  # tests fill disks
}
ADDRESSES = {
    "max-delivery-attempts": "-1",  # by default the tenth redelivery goes to another queue, or nowhere
    "default-address-routing-type": "ANYCAST",  # queues, not topics
    "default-queue-routing-type": "ANYCAST",
    "auto-delete-queues": "false",
    "auto-delete-addresses": "false",
}
MARKERS = '<address-setting match="cues.#"><default-max-consumers>1</default-max-consumers></address-setting>'
"""What docs/stomp.md and docs/amqp.md ask of a broker that processors write to."""

AMQP_SILENCE_MS = 4_000
"""After how long it ends the connection of a client of AMQP that is silent. Its own default is a minute."""


class Artemis(Server):
    """
    An Artemis in a JVM, of the archive on Maven Central.

    What was sent as durable, and was confirmed, is on the disk, whatever `durable` says. `settings` are elements of its
    configuration.

    Attributes:
        heap: of its JVM, as Java writes it. A benchmark whose queues only grow needs more.
    """

    kind = "artemis"
    heap = "192m"
    patience_s = 90.0
    more_ports = 2
    taken = "Address already in use"

    def command(self) -> list[str]:
        settings = "".join(_element(*one) for one in {**SETTINGS, **self.settings}.items())
        file = self.directory / "etc" / "broker.xml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f'<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">{settings}'
            f"<acceptors>{self.acceptors()}</acceptors>{self.security()}"
            f"<address-settings>{self.addresses()}</address-settings></core></configuration>\n",
            "utf-8",
        )
        jars = artemis_jars()
        logging = "-Dlog4j2.disableJmx=true"
        return [*jvm("Artemis", self.heap), logging, "-cp", f"{jars}/*", MAIN, str(self.directory)]

    def acceptors(self) -> str:
        """The ports of its protocols, as elements of its configuration."""
        amqp = self._acceptor("AMQP", self.amqp_port, f";amqpIdleTimeout={AMQP_SILENCE_MS}")
        return f"{self._acceptor('STOMP', self.port)}{amqp}{self._acceptor('MQTT', self.mqtt_port)}"

    def addresses(self) -> str:
        """What holds for queues and topics, as elements of its configuration."""
        found = "".join(_element(*one) for one in ADDRESSES.items())
        return f'<address-setting match="#">{found}</address-setting>{MARKERS}'

    def security(self) -> str:
        """Who may do what, as an element of its configuration; empty: everyone may do everything."""
        return ""

    def environment(self) -> Mapping[str, str]:
        return java_environment(self)

    def template(self) -> None:
        return None

    def try_it(self) -> None:
        greet_stomp(self.port)

    def url(self, database: str = "") -> str:
        """The address of STOMP; a broker has no databases."""
        return f"stomp://127.0.0.1:{self.port}"

    @property
    def amqp_port(self) -> int:
        """The port of AMQP 1.0."""
        return self.ports[0]

    @property
    def mqtt_port(self) -> int:
        """The port of MQTT."""
        return self.ports[-1]

    def _acceptor(self, protocol: str, port: int, more: str = "") -> str:
        return f'<acceptor name="{protocol.lower()}">tcp://127.0.0.1:{port}?protocols={protocol}{more}</acceptor>'


def _element(name: str, value: str) -> str:
    return f"<{name}>{escape(value)}</{name}>"


@cache
def artemis_jars() -> Path:
    """
    The directory of its jars, unpacked once.

    Raises:
        ServerError: the archive cannot be fetched; the text says what was tried.
    """
    return prepared(f"artemis-{VERSION}", _unpack) / "lib"


def _unpack(target: Path) -> None:
    try:
        [archive] = fetched(ARCHIVE, find_java(who="Artemis", otherwise="")).files
    except ConfigError as error:
        raise ServerError(str(error)) from error
    with tarfile.open(archive) as packed:
        for member in packed:
            folder, _, name = member.name.partition("/lib/")
            if folder.startswith("apache-artemis-") and name.endswith(".jar") and "/" not in name:
                member.name = f"lib/{name}"
                packed.extract(member, target, filter="data")
