"""Mosquitto, a broker of MQTT 3.1.1 and 5, for tests."""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.servers.packages import Programs, unpacked
from tests.servers.server import Server

PROGRAM = "usr/sbin/mosquitto"
ANSWER_S = 10.0
CONNACK = 0x20

SETTINGS = {
    "allow_anonymous": "true",
    "log_dest": "stderr",
    "sys_interval": "0",  # it publishes no figures of its own
    "max_queued_messages": "0",  # as many as come; a thousand by default, and those beyond are dropped
    "persistence": "true",
    # With `persistence` alone it writes every half hour, and forgets sessions and queues by SIGKILL. So it writes in
    # the loop that handled a change.
    "autosave_interval": "1",
    "autosave_on_changes": "true",
}


class Mosquitto(Server):
    """
    A mosquitto; the system's, else the one of Debian's package.

    It keeps sessions and what is queued in them over SIGKILL, as long as `SETTINGS` are as they are. It never waits for
    the disk, so `durable` changes nothing. `settings` are lines of its configuration.
    """

    kind = "mosquitto"

    def command(self) -> list[str]:
        settings = {**SETTINGS, **self.settings, "persistence_location": f"{self.data}/"}
        lines = [f"listener {self.port} 127.0.0.1", *(f"{name} {value}" for name, value in settings.items())]
        file = self.directory / "mosquitto.conf"
        file.write_text("\n".join([*lines, ""]), "utf-8")
        return [str(_files()[1]), "-c", str(file)]

    def environment(self) -> Mapping[str, str]:
        return _files()[0].environment

    def template(self) -> None:
        return None

    def try_it(self) -> None:
        """Connect as MQTT 3.1.1 wants it; an answer that refuses the connection is an answer, too."""
        name = f"ready-{secrets.token_hex(6)}".encode()
        body = b"\x00\x04MQTT\x04\x02\x00\x0a" + len(name).to_bytes(2, "big") + name
        with socket.create_connection(("127.0.0.1", self.port), ANSWER_S) as connection:
            connection.sendall(bytes([0x10, len(body)]) + body)
            answer = connection.recv(4)
        if answer[:1] != bytes([CONNACK]):
            raise ConnectionError(f"it answered with {answer!r}")

    def url(self, database: str = "") -> str:
        """The address; MQTT has no databases."""
        return f"mqtt://127.0.0.1:{self.port}"


@cache
def _files() -> tuple[Programs, Path]:
    """The system's program, else the unpacked one."""
    if found := shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"):
        return Programs(Path("/"), "system"), Path(found).resolve()
    return unpacked_files()


def mosquitto_files() -> Programs:
    """Where its program and its plugins are."""
    return _files()[0]


def unpacked_files() -> tuple[Programs, Path]:
    """The program of Debian's package, also where the system has another."""
    programs = unpacked("mosquitto", PROGRAM)
    return programs, programs.root / PROGRAM
