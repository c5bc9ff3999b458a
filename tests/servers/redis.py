"""Redis for tests."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from tests.servers.packages import Programs, unpacked
from tests.servers.server import Server

PROGRAM = "usr/bin/redis-check-rdb"
"""The same program as `redis-server`, which it is under that name; the package of the server has only a link to it."""

SETTINGS = {
    "bind": "127.0.0.1",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "daemonize": "no",
}


class Redis(Server):
    """A Redis server; the system's, else the one of Debian's package."""

    kind = "redis"

    def command(self) -> list[str]:
        settings = {**SETTINGS, **self.settings, "dir": str(self.data), "port": str(self.port)}
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return [str(self._program()), *words]

    def environment(self) -> Mapping[str, str]:
        return self._programs().environment

    def template(self) -> Path | None:
        return None

    def try_it(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as opened:
            opened.sendall(b"PING\r\n")
            if not opened.recv(100).startswith(b"+PONG"):
                raise OSError("it is loading its data")

    def url(self, database: str = "") -> str:
        """Its address, `host:port`."""
        return f"127.0.0.1:{self.port}"

    def _programs(self) -> Programs:
        return Programs(Path("/"), "system") if self._of_system() else unpacked("redis-tools", PROGRAM)

    def _of_system(self) -> str | None:
        return shutil.which("redis-server", path="/usr/bin:/usr/local/bin")

    def _program(self) -> Path:
        if found := self._of_system():
            return Path(found)
        link = self.directory / "redis-server"
        if not link.is_symlink():
            link.symlink_to(self._programs().root / PROGRAM)
        return link
