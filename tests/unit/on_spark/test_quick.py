"""What a session on this machine starts from: modules that are compiled, a daemon that has imported, an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from cues_kafka.brokers.local.java import Java
from cues_kafka.on_spark import classes, daemon
from cues_kafka.on_spark.quick import DAEMON, OFF, SIMPLE, Quick, quick, simple

JAVA = Java(Path("/opt/java/bin/java"), 'JAVA_VERSION="17.0.1"', 17, "JAVA_HOME")


def test_python_processes_import_the_installed_modules(tmp_path: Path) -> None:
    """By the paths that Spark puts before all others, which stay the same from start to start."""
    found, again = (quick("local[2]", JAVA, frames=True, env={"CUES_KAFKA_CACHE": str(tmp_path)}) for _ in range(2))
    home = Path(found.variables["SPARK_HOME"])
    path = [str(one) for one in (home / "python" / "lib").iterdir()]
    code = "import py4j, pyspark; print(py4j.__file__, pyspark.__file__)"
    env = {"PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    assert again == found
    assert sorted(Path(one).name.partition("-")[0] for one in path) == ["py4j", "pyspark.zip"]
    assert [Path(one).resolve() for one in run.stdout.split()][1] == Path(pyspark.__file__)
    assert {str(Path(one).parents[1]) for one in run.stdout.split()} == set(path)
    assert (home / "bin" / "spark-submit").is_file()


def test_daemon_imports_what_the_processes_of_tasks_need(tmp_path: Path) -> None:
    """Without DataFrames pandas is left out, and Java has one compiler."""
    env = {"CUES_KAFKA_CACHE": str(tmp_path)}
    plain, frames = (quick("local[*]", JAVA, frames=frames, env=env) for frames in (False, True))

    assert plain.settings == frames.settings == {DAEMON: daemon.__name__}
    assert SIMPLE in plain.java_options
    assert SIMPLE not in frames.java_options
    assert daemon.FRAMES not in plain.variables
    assert "pandas" in daemon.imports("pyspark.worker", frames=daemon.FRAMES in frames.variables)
    assert "pandas" not in daemon.imports("pyspark.worker", frames=daemon.FRAMES in plain.variables)
    assert daemon.imports("pyspark.sql.worker.plan_data_source_read", frames=True) == ()


def test_imports_of_the_daemon_start_no_thread() -> None:
    """A forked process would not have it."""
    code = """
import importlib, pathlib
from cues_kafka.on_spark.daemon import FORKED, imports
for name in imports("pyspark.worker", frames=True):
    importlib.import_module(name)
print([name for file in pathlib.Path("/proc/self/task").glob("*/comm") if (name := file.read_text().strip()) != FORKED])
"""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)

    assert run.stdout.count("'") == 2, run.stdout


def test_settings_of_the_user_and_clusters_stay_as_they_are(tmp_path: Path) -> None:
    """And where the cache cannot be written, Spark starts from pyspark's directory."""
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(f"{DAEMON} own.daemon\n")
    env = {"CUES_KAFKA_CACHE": str(tmp_path / "cache"), "SPARK_CONF_DIR": str(settings), "SPARK_HOME": "/opt/spark"}
    (settings / "log4j2.properties").touch()
    given = quick("local[2]", JAVA, frames=True, env=env)
    file = tmp_path / "file"
    file.touch()
    unwritable = quick("local[2]", JAVA, frames=True, env={"CUES_KAFKA_CACHE": str(file)})

    assert (given.settings, given.variables["SPARK_HOME"], given.archive) == ({}, "/opt/spark", None)
    assert unwritable.variables["SPARK_HOME"] == str(Path(pyspark.__file__).parent)
    assert quick("spark://host:7077", JAVA, frames=True, env={}) == Quick()
    assert quick("local[2]", JAVA, frames=True, env={OFF: "no"}) == Quick()


def test_file_of_settings_is_named_where_it_is_alone(tmp_path: Path) -> None:
    """Its directory would be on the class path, and with one Java takes no archive."""
    settings = tmp_path / "con f"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("spark.driver.memory 2g\n")
    env = {"CUES_KAFKA_CACHE": str(tmp_path / "cache"), "SPARK_CONF_DIR": str(settings)}
    found = quick("local[2]", JAVA, frames=True, env=env)

    assert found.variables["PYSPARK_SUBMIT_ARGS"] == f"--properties-file '{settings}/spark-defaults.conf' pyspark-shell"
    assert not Path(found.variables["SPARK_CONF_DIR"]).exists()
    assert found.archive is not None
    assert (
        quick("local[2]", JAVA, frames=True, env={**env, "PYSPARK_SUBMIT_ARGS": "--properties-file own x"}).archive
        is None
    )


@pytest.mark.parametrize(
    ("java", "given"),
    [
        (Java(JAVA.program, "", classes.NEWEST + 1, ""), {}),
        (JAVA, {"SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=own.jsa"}),
        (JAVA, {"SPARK_CONF_DIR": "/"}),
    ],
    ids=["unknown Java", "archive of the user", "settings in files"],
)
def test_no_archive_where_java_could_not_start_with_it(java: Java, given: dict[str, str]) -> None:
    """Or would not take it, as with a directory on its class path."""
    assert classes.archive_of(java, Path(pyspark.__file__).parent, given, frames=True) is None
    assert classes.java_options(None) == ""


def test_archive_is_written_once_for_each_java_and_set_of_jars(tmp_path: Path) -> None:
    """An empty file says that this Java makes none."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").write_bytes(b"a")
    env = {"CUES_KAFKA_CACHE": str(tmp_path)}
    first = classes.archive_of(JAVA, tmp_path, env, frames=True)
    (tmp_path / "jars" / "a.jar").write_bytes(b"ab")
    second = classes.archive_of(JAVA, tmp_path, env, frames=True)
    other = classes.archive_of(Java(JAVA.program, "21", 21, ""), tmp_path, env, frames=True)
    assert first is not None
    first.parent.mkdir()

    plain = classes.archive_of(JAVA, tmp_path, env, frames=False)
    assert len({first, second, other, plain}) == 4
    assert "-XX:+RecordDynamicDumpInfo" in classes.java_options(first)
    first.touch()
    assert classes.java_options(first) == ""
    first.write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={first}" in classes.java_options(first)


def test_a_collector_of_the_user_stands_alone(tmp_path: Path) -> None:
    """In a variable or in the file of settings: with two of them a JVM does not start."""
    settings = tmp_path / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseG1GC\n")
    cache = {"CUES_KAFKA_CACHE": str(tmp_path / "cache")}

    for chosen in ({"SPARK_CONF_DIR": str(settings)}, {"SPARK_SUBMIT_OPTS": "-XX:+UseZGC"}):
        assert SIMPLE not in quick("local[2]", JAVA, frames=False, env={**cache, **chosen}).java_options
    assert simple(None, {"JAVA_TOOL_OPTIONS": "-XX:+UseParallelGC"}) == ""
    assert simple(None, {}) == SIMPLE
