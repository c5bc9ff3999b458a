"""
What makes the processes of a session on this machine start sooner. None of it is needed.

- Spark puts a file with the sources of pyspark before everything else on the path of its Python processes, and each of
  them compiles these sources again, for 0.8 s. The installed modules are the same, and are compiled. So Spark is
  started from a directory in the user's cache that has links to them in place of that file.
- The daemon of Python processes imports for all of them, see `daemon`.
- The JVM takes its classes from an archive, see `classes`. If it computes no DataFrames, one compiler is enough.
- Spark looks for data sources in the installed packages, in a process of its own. Where no package has the name of one,
  it is told so.
"""

from __future__ import annotations

import hashlib
import os
import pkgutil
import re
import shlex
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError

from cues_kafka.brokers.local.jars import cache_dir
from cues_kafka.brokers.local.java import Java
from cues_kafka.observe.log import get_logger
from cues_kafka.on_spark.classes import archive_of, java_options
from cues_kafka.on_spark.daemon import FRAMES

log = get_logger("cues_kafka.spark.quick")

OFF: Final = "CUES_KAFKA_QUICK_START"
"""The variable that turns all of it off, with the value `no`."""

DAEMON: Final = "spark.python.daemon.module"

DEFAULTS: Final = "spark-defaults.conf"

SIMPLE: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""One compiler and a simple collector."""

_OF_JAVA: Final = (
    *("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "PYSPARK_SUBMIT_ARGS"),
    *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
)
"""Variables with which users give options to Spark's JVMs."""

_COLLECTOR: Final = re.compile(r"-XX:[+-]Use\w+GC|-XX:TieredStopAtLevel")

_LINKED: Final = ("bin", "conf", "jars")


@dataclass(frozen=True, slots=True)
class Quick:
    """
    What is different where a session starts.

    Attributes:
        variables: of the environment of the JVM.
        settings: of the session.
        java_options: of the JVM.
        archive: the class archive, see `classes`.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    archive: Path | None = None


def quick(master: str, java: Java, *, frames: bool, env: Mapping[str, str] = os.environ) -> Quick:
    """
    Return what fits a session; nothing on a cluster, where other machines have other files.

    Args:
        master: of Spark.
        java: of its JVM.
        frames: whether it computes DataFrames.
        env: of this process.
    """
    if not master.startswith("local") or env.get(OFF) == "no":
        return Quick()
    home = _spark_home(env)
    variables = {"SPARK_HOME": str(home), **({FRAMES: "yes"} if frames else {}), **_settings_by_name(home, env)}
    has_cache = home != _package("pyspark")
    archive = archive_of(java, home, {**env, **variables}, frames=frames) if has_cache else None
    settings = {} if _is_set(DAEMON, home, env) else {DAEMON: "cues_kafka.on_spark.daemon"}
    options = [java_options(archive), "" if frames else simple(home, env)]
    return Quick(variables, settings, " ".join(filter(None, options)), archive)


def simple(home: Path | None, env: Mapping[str, str]) -> str:
    """Return `SIMPLE`; nothing if the user chooses a collector: with two of them a JVM does not start."""
    given = [env.get(name, "") for name in _OF_JAVA]
    if home and (file := _settings_file(home, env)).is_file():
        given.append(file.read_text("utf-8"))
    return "" if _COLLECTOR.search(" ".join(given)) else SIMPLE


def _settings_by_name(home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """
    Variables that name the user's file of settings, where it is alone in its directory; else nothing.

    Spark puts the directory on the class path, and with it Java can use no archive.
    """
    directory, given = Path(env.get("SPARK_CONF_DIR", "")), env.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    if not env.get("SPARK_CONF_DIR") or "--properties-file" in given:
        return {}
    if not directory.is_dir() or [one.name for one in directory.iterdir()] != [DEFAULTS]:
        return {}
    named = f"--properties-file {shlex.quote(str(directory / DEFAULTS))} {given}"
    return {"SPARK_CONF_DIR": str(home / "no-settings"), "PYSPARK_SUBMIT_ARGS": named}


def tell_of_no_sources(session: Any) -> None:
    """Tell Spark that no installed package brings a data source, where that is so: it finds them by their names."""
    if any(module.name.startswith("pyspark_") for module in pkgutil.iter_modules()):
        return
    jvm = session._jvm  # noqa: SLF001 - Spark has no setting for it
    try:
        none = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        manager = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
        getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(jvm.scala.Option.apply(none))
    except (Py4JError, TypeError) as error:  # another version of Spark, which looks for them itself
        log.debug("Spark looks for data sources", error=str(error).partition("\n")[0])


def _settings_file(home: Path, env: Mapping[str, str]) -> Path:
    return Path(env.get("SPARK_CONF_DIR") or home / "conf") / DEFAULTS


def _is_set(name: str, home: Path, env: Mapping[str, str]) -> bool:
    file = _settings_file(home, env)
    return name in env.get("PYSPARK_SUBMIT_ARGS", "") or (file.is_file() and name in file.read_text("utf-8"))


def _spark_home(env: Mapping[str, str]) -> Path:
    """
    The directory from which Spark is started: the user's own one, else one in the cache, else that of pyspark.

    It stays the same from start to start, because a class archive keeps the paths of the jars.
    """
    if given := env.get("SPARK_HOME"):
        return Path(given)
    installed = _package("pyspark")
    home = cache_dir(env) / "spark" / f"home-{hashlib.sha256(str(installed).encode()).hexdigest()[:24]}"
    try:
        if not home.exists():
            home.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="home-", dir=home.parent) as name:
                made = Path(name) / "home"
                _link(made, installed)
                with suppress(FileExistsError):  # another process has made it
                    made.rename(home)
    except OSError as error:
        log.debug("Spark starts from its own directory", error=str(error))
        return installed
    return home if (home / "bin" / "spark-submit").exists() else installed


def _link(home: Path, installed: Path) -> None:
    library = home / "python" / "lib"
    library.mkdir(parents=True)
    for name in _LINKED:
        if (installed / name).exists():
            (home / name).symlink_to(installed / name)
    for file in (installed / "python" / "lib").glob("*.zip"):  # a directory by the name of each, with the package in it
        package = file.stem.partition("-")[0]
        (library / file.name).mkdir()
        (library / file.name / package).symlink_to(_package(package))


def _package(name: str) -> Path:
    """The directory of an installed package."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
