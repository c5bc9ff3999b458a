"""Formatted data directories and a class archive, which the first start makes for all later ones.

Formatting needs a JVM of its own (1 to 2 s), and a JVM that loads its classes from an archive starts in a third of the
time. Both are made once for each Java and set of jars, in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cues_kafka.brokers.local.jars import HERE, Jars, Say, cache_dir, exclusive
from cues_kafka.brokers.local.java import NO_PERF_DATA, Java
from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.brokers.local.probe import GROUP, TRANSACTION, has_coordinator, look
from cues_kafka.brokers.local.progress import progress
from cues_kafka.brokers.local.properties import CONTROLLER, PLAINTEXT, node_properties, write_properties
from cues_kafka.errors import BrokerError

CLUSTER_ID = "Y3Vlcy1rYWZrYS1sb2NhbA"
"""22 characters of URL-safe base64: 16 bytes, as Kafka wants them."""
MOST_NODES = 3

QUICK = (
    "-Xms96m", "-Xmx320m", "-XX:+UseSerialGC",
    # The first compiler alone: a broker that lives for seconds does not gain from the second one.
    "-XX:TieredStopAtLevel=1",
)  # fmt: skip
STRONG = ("-Xms1g", "-Xmx1g")


ARCHIVE = "classes.jsa"
"""The class archive in a prepared directory; it is empty if Java cannot make one, and missing if time ran out."""

FORMAT_S = 300.0
"""How long formatting may take; it takes 2 s."""
TRAIN_S, END_S, DUMP_S = 300.0, 60.0, 300.0
"""How long the broker whose classes are listed may take to serve and to end, and a JVM to write the archive."""


def node_directory(prepared: Path, node_id: int) -> Path:
    """The formatted, otherwise empty data directory of a node in a prepared directory."""
    return prepared / f"node-{node_id}"


def command(java: Java, jars: Jars, directory: Path, *main: str, options: Sequence[str] = QUICK) -> list[str]:
    """The command of a JVM that writes its files to its own directory."""
    return [
        str(java.program),
        *options,
        NO_PERF_DATA,
        f"-XX:ErrorFile={directory}/hs_err_%p.log",
        f"-Djava.io.tmpdir={directory}",
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        "-cp",
        jars.class_path,
        *main,
    ]


def prepare(java: Java, jars: Jars, env: Mapping[str, str], *, say: Say) -> Path:
    """
    The prepared directory of this Java and these jars, which one process makes if it is missing.

    Raises:
        BrokerError: formatting failed, with its output, or did not end in time.
    """
    directory = cache_dir(env) / "prepared" / _key(java, jars)
    if not (directory / ARCHIVE).is_file():
        with (
            exclusive(directory.with_suffix(".lock"), say=say, waits_for="prepares the local broker"),
            progress(say, lambda seconds: f"still preparing the local broker: {seconds:.0f} s"),
        ):
            if not directory.is_dir():
                _make(directory, java, jars, say)
            elif not (directory / ARCHIVE).is_file():  # an earlier start had too little time for it
                with tempfile.TemporaryDirectory(prefix="prepare-", dir=directory.parent) as name:
                    _archive(directory, Path(name), java, jars, say)
    return directory


def archive_options(prepared: Path) -> list[str]:
    """The options of a JVM that takes its classes from the archive, if there is one."""
    archive = prepared / ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}"] if archive.is_file() and archive.stat().st_size else []


def _key(java: Java, jars: Jars) -> str:
    """A name for this Java and these jars: a JVM silently ignores an archive of other classes or another JVM."""
    seen = [java.version, str(java.program.resolve())]
    for file in jars.files:
        stat = file.stat()
        seen.append(f"{file} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:24]


def _make(directory: Path, java: Java, jars: Jars, say: Say) -> None:
    say("preparing the local broker (once per Java version)")
    with tempfile.TemporaryDirectory(prefix="prepare-", dir=directory.parent) as name:
        work, made = Path(name), Path(name) / "made"
        made.mkdir()
        with contextlib.ExitStack() as running:
            formatting = [_format(made, node_id, work, java, jars) for node_id in range(1, MOST_NODES + 1)]
            for process in formatting:
                running.callback(process.kill)
            for process in formatting:
                output = _output(process)
                if process.returncode != 0:
                    raise BrokerError(f"Kafka's StorageTool failed to format a data directory:\n{output[-2000:]}")
        _archive(made, work, java, jars, say)
        made.rename(directory)


def _format(made: Path, node_id: int, work: Path, java: Java, jars: Jars) -> subprocess.Popen[str]:
    file = work / f"format-{node_id}.properties"
    ports = [{PLAINTEXT: 1, CONTROLLER: 2}] * MOST_NODES  # they are not kept in the formatted directory
    write_properties(file, node_properties(node_id, ports=ports, data=node_directory(made, node_id)))
    return subprocess.Popen(
        command(java, jars, work, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=work,
    )  # fmt: skip


def _output(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=FORMAT_S)[0]
    except subprocess.TimeoutExpired:
        raise BrokerError(
            f"Kafka's StorageTool did not format a data directory within {FORMAT_S:g} s. Start again when the machine "
            "has less to do."
        ) from None


def _archive(prepared: Path, work: Path, java: Java, jars: Jars, say: Say) -> None:
    """Run a broker once, list the classes that it loads, and put them into an archive; see `ARCHIVE`.

    The archive is *static*: it does not build on an archive of the JDK, which the Java from PyPI lacks. Without one,
    the broker only starts slower.
    """
    data, file, classes, made = work / "train", work / "train.properties", work / "classes.lst", work / ARCHIVE
    shutil.copytree(node_directory(prepared, 1), data)
    client, controller = free_ports(2)
    write_properties(file, node_properties(1, ports=[{PLAINTEXT: client, CONTROLLER: controller}], data=data))
    listing = command(
        java, jars, work, "kafka.Kafka", str(file), options=[*QUICK, f"-XX:DumpLoadedClassList={classes}"]
    )
    dump = ["-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"]
    with (work / "train.log").open("wb") as log:
        quietly: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT, "cwd": work}
        try:
            _train(subprocess.Popen(listing, **quietly), client)
            dumping = command(java, jars, work, options=[*QUICK, *dump])
            subprocess.run(dumping, **quietly, timeout=DUMP_S, check=False)
        except subprocess.TimeoutExpired:
            say("the broker's class archive was not made in time; the next start tries again, and this one is slower")
            return
    made.touch()  # also where Java made none
    made.rename(prepared / ARCHIVE)


def _train(training: subprocess.Popen[bytes], client: int) -> None:
    """Let the broker serve, then end it in order: only then does its JVM write the list of classes."""
    try:
        end = time.monotonic() + TRAIN_S
        while training.poll() is None and not _serves(client):
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(training.args, TRAIN_S)
            time.sleep(0.05)
        training.send_signal(signal.SIGTERM)
        training.wait(END_S)
    finally:
        training.kill()
        training.wait()


def _serves(port: int) -> bool:
    """Whether the broker is as ready as a start demands, so that the archive holds all classes of a start."""
    return look(port) is not None and has_coordinator(port, TRANSACTION) and has_coordinator(port, GROUP)
