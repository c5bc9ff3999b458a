"""Run a command in namespaces of its own, where it can start a Docker engine that leaves nothing on the machine.

    python -m tests.docker.alone COMMAND...

An engine makes bridges, rules of iptables, mounts, processes and files in /run and /etc, and switches the forwarding of
packets on. A second engine on a machine would share these with the first one. So the command gets its own

- network: loopback, and through `slirp4netns` a way out. No other machine, and no other program of this one, reaches a
  port in it;
- processes: the kernel ends all of them with the first;
- mounts: /run is empty, what is written to /etc goes to a temporary directory.

They end with the command, and also if this process is killed. What is left then is a temporary directory and control
groups without processes: the next run removes them.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cues_kafka.brokers.temporary import SUFFIX, has_owner, locked_directory

PREFIX = "cues-kafka-docker-"
"""Begins the names of the temporary directory and of the control groups."""
PLACE = "CUES_KAFKA_DOCKER_PLACE"
"""The variable by which the command knows the temporary directory, and that it runs in namespaces of its own."""
NEEDED = {
    "unshare": "util-linux", "setpriv": "util-linux", "mount": "mount", "slirp4netns": "slirp4netns",
    "iptables": "iptables", "dockerd": "docker.io", "debootstrap": "debootstrap",
}  # fmt: skip
"""By program, Debian's package of it."""
SYSTEM = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"
CGROUPS = Path("/sys/fs/cgroup")
REAP_S = 10.0
RESOLVER = "10.0.2.3"
"""Where `slirp4netns` answers for the machine's resolver, which may itself listen on loopback."""


def main(command: Sequence[str]) -> int:
    """Run the command; the exit code is that of the command, or 2 where the machine cannot do it."""
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    sweep()
    place, lock = locked_directory(PREFIX, Path(tempfile.gettempdir()))
    try:
        return outside(place, command)
    finally:
        remove_cgroups(place.name)
        shutil.rmtree(place)
        os.close(lock)


def missing() -> str:
    """Install what is missing, where that can be done; the reason why it cannot, or nothing."""
    if os.geteuid() != 0:
        return "The tests with Docker start an engine of their own, which needs root. Run `make test-docker` as root."
    wanted = {package for program, package in NEEDED.items() if not shutil.which(program, path=SYSTEM)}
    if not wanted:
        return ""
    install = f"apt-get install --yes --no-install-recommends {' '.join(sorted(wanted))}"
    if not shutil.which("apt-get"):
        return f"The tests with Docker need programs that are not here. On Debian or Ubuntu: {install}"
    print(f"apt-get update && {install}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with services_stay_off():
        for words in ("apt-get -qq update", install.replace("apt-get", "apt-get -qq")):
            done = subprocess.run(words.split(), env=environment, stdout=subprocess.DEVNULL, check=False)
            if done.returncode != 0:
                return f"`{words}` ended with {done.returncode}. Correct the sources of apt, then run this again."
    return ""


@contextmanager
def services_stay_off() -> Iterator[None]:
    """Debian starts the services of a package that it installs: here an engine for the whole machine."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():  # the machine has a rule of its own
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n", "utf-8")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def sweep() -> None:
    """Remove control groups of runs that were killed; `locked_directory` removes their directories."""
    for name in {group.name for group in cgroups(PREFIX)}:
        if name.endswith(SUFFIX) and not has_owner(Path(tempfile.gettempdir()) / name):
            remove_cgroups(name)


def cgroups(prefix: str) -> list[Path]:
    """The control groups whose names begin so, in all hierarchies."""
    return [*CGROUPS.glob(f"{prefix}*"), *CGROUPS.glob(f"*/{prefix}*")]


def remove_cgroups(name: str) -> None:
    """Remove the control groups of this name with all below them; their processes are dead."""
    deadline = time.monotonic() + REAP_S
    for top in cgroups(name):
        for folder, _, _ in os.walk(top, topdown=False):
            while True:
                try:
                    Path(folder).rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)  # the kernel counts dead processes for a moment, and tells no event
                else:
                    break


def outside(place: Path, command: Sequence[str]) -> int:
    """Start the first process of the namespaces, connect its network, and wait for it."""
    with ExitStack() as ends:
        made_read, made_write = os.pipe()
        ready_read, ready_write = os.pipe()
        inner = [sys.executable, "-m", "tests.docker.alone", "--inside", str(made_write), str(ready_read), *command]
        first = subprocess.Popen(
            [
                "setpriv", "--pdeathsig", "KILL",
                "unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", *inner,
            ],
            pass_fds=(made_write, ready_read),
            env={**os.environ, "PATH": SYSTEM, PLACE: str(place)},
        )  # fmt: skip
        ends.callback(first.wait)
        ends.callback(first.kill)
        os.close(made_write)
        os.close(ready_read)
        # In a terminal, Ctrl-C goes to the command too, which says what it has done, and ends.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        with os.fdopen(made_read, "rb") as made:
            if not made.read(1):
                return first.wait() or 2
        network = subprocess.Popen(
            [
                "setpriv", "--pdeathsig", "KILL",
                "slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback",
                f"--ready-fd={ready_write}", str(first.pid), "tap0",
            ],
            pass_fds=(ready_write,),
            stdout=(place / "network.log").open("wb"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": SYSTEM},
        )  # fmt: skip
        ends.callback(network.wait)
        ends.callback(network.kill)
        os.close(ready_write)  # if slirp4netns fails, the first process sees the end of the pipe
        return first.wait()


def inside(made: int, ready: int, command: Sequence[str]) -> int:
    """The first process of the namespaces: wait for the network, arrange the mounts, run the command."""
    os.write(made, b"+")
    os.close(made)
    place = Path(os.environ[PLACE])
    with os.fdopen(ready, "rb") as pipe:
        if not pipe.read(1):
            print(f"slirp4netns failed:\n{(place / 'network.log').read_text('utf-8')}", file=sys.stderr)
            return 2
    mount("-t", "tmpfs", "tmpfs", "/run")
    for name in ("etc", "etc.work"):
        (place / name).mkdir()
    mount("-t", "overlay", "-o", f"lowerdir=/etc,upperdir={place}/etc,workdir={place}/etc.work", "overlay", "/etc")
    resolver = Path("/etc/resolv.conf")
    resolver.unlink(missing_ok=True)  # it may be a link into /run
    resolver.write_text(f"nameserver {RESOLVER}\n", "utf-8")
    signal.signal(signal.SIGINT, lambda *_: None)
    program = subprocess.Popen(command)
    while True:  # the first process inherits all processes that lose their parent
        pid, status = os.wait()
        if pid == program.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def mount(*arguments: str) -> None:
    """Mount; the namespace forgets it at its end."""
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--inside", made, ready, *words]:
            sys.exit(inside(int(made), int(ready), words))
        case [_, *_] as words:
            sys.exit(main(words))
        case _:
            sys.exit(f"{__doc__}")
