"""Apicurio Registry as a child process: with files of its own, on loopback, with Confluent's protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from cues_kafka.brokers.local.jars import MAVEN_PLUGIN, Locked, Wanted, fetched
from cues_kafka.brokers.local.java import NO_PERF_DATA, find_java
from cues_kafka.brokers.local.ports import free_ports

VERSION = "2.6.13.Final"
NAME = f"apicurio-registry-app-{VERSION}"
ARCHIVE = Wanted(
    f"Apicurio Registry {VERSION}",
    NAME,
    {
        f"{NAME}-all.tar.gz": Locked(
            "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba",
            142_198_683,
        )
    },
    "the pinned hash",
    maven=(f"{MAVEN_PLUGIN}:copy", f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"),
    ivy=("-ivy", str(Path(__file__).with_name("ivy.xml"))),
    types=("tar.gz",),
)
START_S = 120.0


class Apicurio:
    """
    A registry, started by `start` and ended by `close`; also a context manager.

    Attributes:
        url: where it speaks Confluent's protocol.
    """

    def __init__(self, directory: Path) -> None:
        [self._port] = free_ports(1)
        self._directory = directory
        self._java = find_java(who="Apicurio Registry")
        [archive] = fetched(ARCHIVE, self._java).files
        with tarfile.open(archive) as packed:
            packed.extractall(directory, filter="data")
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with what it had, at first nothing, and wait until it answers."""
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", NO_PERF_DATA]
        options += [f"-Djava.io.tmpdir={self._directory}", "-Dquarkus.http.host=127.0.0.1"]
        options += [f"-Dquarkus.http.port={self._port}", "-jar", f"{NAME}-runner.jar"]
        with (self._directory / "registry.log").open("ab") as log:
            self._child = subprocess.Popen(
                [str(self._java.program), *options],
                cwd=self._directory,
                stdout=log,
                stderr=log,
                env=os.environ
                | {
                    "JAVA_TOOL_OPTIONS": "",
                    "REGISTRY_DATASOURCE_URL": f"jdbc:h2:file:{self._directory}/registry;WRITE_DELAY=0",
                },
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self._directory / "registry.log").read_text("utf-8", "replace")[-3000:])
            time.sleep(0.2)  # no event tells that a port is open

    def kill(self) -> None:
        """It ends at once."""
        assert self._child
        self._child.send_signal(signal.SIGKILL)
        self._child.wait(30)

    def close(self) -> None:
        """End it."""
        if self._child and self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
