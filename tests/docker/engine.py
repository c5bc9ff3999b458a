"""A Docker engine in the namespaces of `tests.docker.alone`, and its client."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.docker.alone import PLACE
from tests.fault.support import until
from tests.servers.packages import ServerError
from tests.test_docs import ROOT

SOCKET = "/run/docker.sock"
"""Only these namespaces have it: `/run` is their own. The names of sockets may be 107 characters long, no longer."""
START_S = 60.0
BUILD_S = 1_800.0
"""For the longest command: a build fetches 600 MB of packages."""


class Engine:
    """
    An engine of this run, which ends with it.

    Attributes:
        place: the temporary directory of the run.
        environment: in which every client of Docker finds this engine, and Compose among the client's plug-ins.
    """

    def __init__(self) -> None:
        """
        Raises:
            ServerError: the tests do not run in namespaces of their own.
        """
        if PLACE not in os.environ:
            raise ServerError("These tests start a Docker engine in namespaces of their own. Run `make test-docker`.")
        self.place = Path(os.environ[PLACE])
        self.config = self.place / "client"
        self.environment = {
            **os.environ,
            "DOCKER_HOST": f"unix://{SOCKET}",
            "DOCKER_CONFIG": str(self.config),
            "DOCKER_BUILDKIT": "1",
        }
        # The client of the engine's own package comes first: another one may lack what it needs for a build.
        self.client = shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}") or "docker"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.config.mkdir()
        with (self.place / "engine.log").open("wb") as log:
            self._daemon = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "KILL",
                    "dockerd", "--data-root", str(self.place / "data"), "--exec-root", "/run/exec",
                    "--host", self.environment["DOCKER_HOST"], "--pidfile", str(self.place / "engine.pid"),
                    "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.place.name}",
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip

        def answers() -> bool:
            if self._daemon.poll() is not None:
                raise ServerError(f"dockerd ended:\n{(self.place / 'engine.log').read_text('utf-8')[-3000:]}")
            return self.try_docker("version").returncode == 0

        until(answers, "the Docker engine answers", START_S)

    def stop(self) -> None:
        """End it with all its containers."""
        self._daemon.terminate()
        try:
            self._daemon.wait(60)
        except subprocess.TimeoutExpired:  # the namespace ends it
            self._daemon.kill()
            self._daemon.wait()

    def try_docker(
        self, *words: str, timeout_s: float = BUILD_S, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the client; its end may be any."""
        return subprocess.run(
            [self.client, *words], cwd=ROOT, env={**self.environment, **(environment or {})}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip

    def docker(self, *words: str, timeout_s: float = BUILD_S) -> str:
        """
        Run the client, and return what it printed.

        Raises:
            ServerError: it failed; the text holds the end of what it said.
        """
        began = time.monotonic()
        done = self.try_docker(*words, timeout_s=timeout_s)
        if done.returncode != 0:
            seconds = time.monotonic() - began
            said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            raise ServerError(f"`docker {' '.join(words)}` ended with {done.returncode} after {seconds:.0f} s:\n{said}")
        return done.stdout

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        [found] = json.loads(self.docker("inspect", container))
        return dict(found)

    def logs(self, container: str) -> str:
        """What a container has printed, on both of its outputs."""
        done = self.try_docker("logs", container)
        return done.stdout + done.stderr
