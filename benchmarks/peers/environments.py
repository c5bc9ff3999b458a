"""What the peers run in: a virtual environment each below .venv/peers, and the jars and classes of Kafka Streams."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from cues_kafka.brokers.local.jars import MAVEN_PLUGIN, Wanted, exclusive, fetched, read_lock
from cues_kafka.brokers.local.java import find_java
from cues_kafka.errors import ConfigError

HERE = Path(__file__).parent
LOCKS = HERE / "locks"
PROGRAMS = HERE / "programs"
BELOW = Path(sys.prefix) / "peers"
"""The folder of all environments: the project's own environment, which git ignores as a whole."""

STREAMS = "4.3.1"
MARK = ".installed"
"""A file of a complete environment, with the hash of what it was made of."""


def python_of(peer: str) -> Path:
    """
    The Python of a peer's environment, which is made the first time and whenever its lock has changed.

    Raises:
        ConfigError: its packages cannot be installed; the text has what the installer said.
    """
    lock, place = LOCKS / f"{peer}.lock", BELOW / peer
    python, mark = place / "bin" / "python", place / MARK
    with exclusive(BELOW / f"{peer}.wait"):
        if not _is(mark, lock):
            uv = str(Path(sys.prefix) / "bin" / "uv")
            print(f"installing {lock.name} into {place}", flush=True)
            _done(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place))
            words = ("pip", "install", "--quiet", "--compile-bytecode", "--require-hashes", "--no-deps")
            _done(uv, *words, "--python", str(python), "-r", str(lock))
            mark.write_text(_digest(lock), "utf-8")
    return python


def java_of(program: str) -> list[str]:
    """
    The command of a program of Kafka Streams, which `javac` compiles the first time.

    Raises:
        ConfigError: there is no JDK, or the jars cannot be fetched, or the program does not compile.
    """
    java, source, place = find_java(who="Kafka Streams", otherwise=""), PROGRAMS / f"{program}.java", BELOW / "streams"
    jars = fetched(wanted(), java, say=lambda text: print(text, flush=True)).class_path
    mark = place / f"{program}{MARK}"
    with exclusive(BELOW / "streams.wait"):
        if not _is(mark, source):
            compiler = java.home / "bin" / "javac"
            if not compiler.exists():
                raise ConfigError(f"{source.name} needs a JDK: there is no {compiler}. Install one, or set JAVA_HOME.")
            _done(str(compiler), "-cp", jars, "-d", str(place), str(source))
            mark.write_text(_digest(source), "utf-8")
    return [str(java.program), "-Xmx1g", "-cp", os.pathsep.join([str(place), jars]), program]


def wanted() -> Wanted:
    """The jars of Kafka Streams, with the jars that they need."""
    lock = LOCKS / f"streams-{STREAMS}.lock"
    return Wanted(
        f"Kafka Streams {STREAMS}", f"streams-{STREAMS}", read_lock(lock), lock.name,
        maven=("-f", str(LOCKS / "pom.xml"), f"{MAVEN_PLUGIN}:copy-dependencies", "-DincludeScope=runtime"),
        ivy=("-ivy", str(LOCKS / "ivy.xml")),
    )  # fmt: skip


def _is(mark: Path, made_of: Path) -> bool:
    return mark.exists() and mark.read_text("utf-8") == _digest(made_of)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _done(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{' '.join(command[:3])} ... ended with {done.returncode}:\n{done.stderr[-3_000:]}")
