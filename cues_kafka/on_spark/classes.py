"""A class archive for the JVM of a session: the first run on a machine makes it, and later ones start with it.

With one, a session takes half the processor time to its first results. It is in the user's cache, one for each Java and
set of jars, with DataFrames and without. A live JVM writes it, once each query has finished a micro-batch, so a driver
that is killed has had it written, too. That stops the JVM for about two seconds, once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from cues_kafka.brokers.local.jars import cache_dir
from cues_kafka.brokers.local.java import Java
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.spark.classes")

NEWEST: Final = 25
"""The newest Java whose options are known: a JVM that does not know an option does not start."""

OPTION: Final = "SharedArchiveFile"

_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"

WARMING: Final = "cues-warming"
"""The name of the query that warms a session. It loads fewer classes than the queries of a graph."""

LOOK_S: Final = 2.0
"""How often it is asked whether each query has finished a micro-batch."""


def archive_of(java: Java, home: Path, env: Mapping[str, str], *, frames: bool) -> Path | None:
    """
    The archive of this Java and these jars, which may not be there yet; None: there is none with these settings.

    A session that computes DataFrames has one of its own, because plain processors load fewer classes. A JVM makes none
    whose class path has a directory with files, as that of the user's settings is. An empty file says that this Java
    made none.
    """
    given = " ".join(env.get(name, "") for name in ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    settings = Path(env.get("SPARK_CONF_DIR") or home / "conf")
    if java.major > NEWEST or OPTION in given or settings.exists() or env.get("SPARK_DIST_CLASSPATH"):
        return None
    seen = [java.version, str(java.program.resolve()), str(home), f"frames {frames}"]
    for file in sorted((home / "jars").iterdir()):
        found = file.stat()
        seen.append(f"{file.name} {found.st_size} {found.st_mtime_ns}")
    return cache_dir(env) / "spark" / f"{hashlib.sha256(chr(10).join(seen).encode()).hexdigest()[:24]}.jsa"


def java_options(archive: Path | None) -> str:
    """Options of a JVM that takes its classes from the archive, or that can write it."""
    if archive is None:
        return ""
    if not archive.exists():
        return f"-XX:+RecordDynamicDumpInfo {_QUIET}"
    return f"-XX:{OPTION}={archive} {_QUIET}" if archive.stat().st_size else ""


@contextmanager
def written(session: Any, archive: Path | None) -> Iterator[None]:
    """In the background, have the session's JVM write the archive if it is not there, as soon as its queries work."""
    if archive is None or archive.exists():
        yield
        return
    over = threading.Event()
    writer = threading.Thread(target=_write_when_at_work, args=(session, archive, over), name="classes", daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _write_when_at_work(session: Any, archive: Path, over: threading.Event) -> None:
    try:
        while not over.wait(LOOK_S):
            queries = [query for query in session.streams.active if query.name != WARMING]
            if queries and all(query.lastProgress for query in queries):
                write(session, archive)
                return
    except (PySparkException, Py4JError, OSError) as error:  # the JVM was ended; or its cache cannot be written
        log.debug("no class archive", error=str(error).partition("\n")[0])


def write(session: Any, archive: Path) -> None:
    """
    Have the session's JVM write its classes.

    Raises:
        OSError: the file cannot be written.
        Py4JError: this JVM writes none.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        said = _command(session, "vmCds", "dynamic_dump", str(made))
        if made.exists():
            made.rename(archive)
            log.info("class archive written", file=str(archive), mib=archive.stat().st_size >> 20)
        else:
            archive.touch()
            log.debug("no class archive", said=str(said))
    except Py4JJavaError:
        archive.touch()
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            made.unlink()


def _command(session: Any, name: str, *arguments: str) -> Any:
    """Have the session's JVM run a diagnostic command, as jcmd does; return what it says."""
    jvm, gateway = session._jvm, session.sparkContext._gateway  # noqa: SLF001 - only Java writes it

    def array(kind: Any, *values: Any) -> Any:
        made = gateway.new_array(kind, len(values))
        for place, value in enumerate(values):
            made[place] = value
        return made

    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    words = array(jvm.java.lang.Object, array(jvm.java.lang.String, *arguments))
    types = array(jvm.java.lang.String, "[Ljava.lang.String;")
    # By its interface: the class of the server is not public, and py4j finds no method of it.
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
    [invoke] = [method for method in methods if method.getName() == "invoke"]
    return invoke.invoke(server, array(jvm.java.lang.Object, commands, name, words, types))
