"""The program of an executor's container: the variables of Spark's driver become a command of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.executor import ARGUMENT, BACKEND, command, main

GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "totals-exec-3",
}


def test_the_command_has_everything_that_the_driver_gave() -> None:
    """Options of Java in the order of their numbers, and words with blanks as they are."""
    java = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)} | {"SPARK_JAVA_OPT_1": "-Da=b c"}

    found = command("/usr/bin/java", Path("/opt/spark"), GIVEN | java)

    assert found == [
        "/usr/bin/java", "-Dn=0", "-Da=b c", "-Dn=2", "-Dn=10", "-Xms1024m", "-Xmx1024m",
        "-cp", "/opt/spark/conf:/opt/spark/jars/*", BACKEND,
        "--driver-url", "spark://CoarseGrainedScheduler@127.0.0.1:1", "--executor-id", "3", "--cores", "1",
        "--app-id", "spark-1", "--hostname", "127.0.0.1", "--resourceProfileId", "0", "--podName", "totals-exec-3",
    ]  # fmt: skip


def test_jars_of_the_user_are_on_the_class_path() -> None:
    """Those of spark.executor.extraClassPath before Spark's own, those of a distribution behind them."""
    found = command("java", Path("/s"), GIVEN | {"SPARK_CLASSPATH": "/own/*", "SPARK_DIST_CLASSPATH": "/hadoop/*"})

    assert found[found.index("-cp") + 1] == "/opt/spark/conf:/own/*:/s/jars/*:/hadoop/*"


@pytest.mark.parametrize("missing", [name for name in GIVEN if name != "SPARK_CONF_DIR"])
def test_a_missing_variable_is_named_with_the_place_of_the_command(missing: str) -> None:
    """The program was started by hand, or for another container."""
    given = {name: value for name, value in GIVEN.items() if name != missing}

    with pytest.raises(ConfigError, match=f"the environment has no {missing}. Name it .*podTemplateFile"):
        command("java", Path("/s"), given)


def test_another_argument_is_refused() -> None:
    """Spark gives `driver` to the driver's container in cluster mode."""
    with pytest.raises(ConfigError, match=r"one argument, 'executor', not \['driver', 'x'\]"):
        main(["driver", "x"])


def test_the_program_becomes_java_with_the_jars_of_pyspark(tmp_path: Path) -> None:
    """With its own pid, so that signals of Kubernetes reach Java."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        '#!/bin/sh\n[ "$2" = -version ] && { echo \'openjdk version "17.0.1"\' >&2; exit; }\n'
        'echo "$$" "$SPARK_HOME" "$@"\n'
    )
    java.chmod(0o755)
    environment = os.environ | GIVEN | {"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"}
    program = [sys.executable, "-m", "cues_kafka.on_spark.executor", ARGUMENT]

    with subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True) as process:
        printed, _ = process.communicate(timeout=60)

    pid, home, *words = printed.split()
    assert int(pid) == process.pid
    assert list((Path(home) / "jars").glob("spark-kubernetes_*.jar"))
    assert f"/opt/spark/conf:{home}/jars/*" in words
    assert BACKEND in words
