"""The program of an executor's container on Kubernetes: ``python -m cues_kafka.on_spark.executor executor``.

Spark's driver creates the pods of its executors. It gives each of them variables, and the argument ``executor``, and
leaves it to the image to start Java with them. Images that Spark's own tool builds have a script for that. Here Spark
comes with the Python package, so this program does it. Name it as `command` of the pods' template.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.extras import SPARK, require
from cues_kafka.on_spark.java import find_java

BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
"""The class that registers with the driver."""

ARGUMENT: Final = "executor"
"""What Spark adds to the container's command."""

OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Options of the class, and the variables with their values."""

MEMORY: Final = "SPARK_EXECUTOR_MEMORY"

_JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")


def command(java: str, spark: Path, environment: Mapping[str, str]) -> list[str]:
    """
    The program that becomes the executor.

    Args:
        java: the program `java`.
        spark: the directory of Spark, with its jars.
        environment: the container's variables.

    Raises:
        ConfigError: variables are missing that Spark's driver gives to each executor.
    """
    if missing := [name for name in (MEMORY, *OPTIONS.values()) if name not in environment]:
        raise ConfigError(
            f"this is the program of an executor that Spark's driver has created, and the environment has no "
            f"{', '.join(missing)}. Name it as the command in the template of executors' pods "
            "(spark.kubernetes.executor.podTemplateFile)"
        )
    numbered = {int(found[1]): name for name in environment if (found := _JAVA_OPTION.fullmatch(name))}
    given = [environment[numbered[number]] for number in sorted(numbered)]
    places = [environment.get("SPARK_CONF_DIR"), environment.get("SPARK_CLASSPATH"), f"{spark / 'jars'}/*"]
    places.append(environment.get("SPARK_DIST_CLASSPATH"))
    memory = environment[MEMORY]
    options = [word for option, name in OPTIONS.items() for word in (option, environment[name])]
    return [java, *given, f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(filter(None, places)), BACKEND, *options]


def main(arguments: Sequence[str]) -> None:
    """
    Become the executor, with the pid of this process.

    Raises:
        MissingExtra: a package of Spark is not installed in this image.
        ConfigError: this is not the container of an executor, or there is no Java.
        CuesError: a program that may be Java did not answer.
    """
    if list(arguments) != [ARGUMENT]:
        raise ConfigError(f"Spark gives this program one argument, {ARGUMENT!r}, not {list(arguments)}. See `command`")
    require("an executor", SPARK)
    spark = Path(str(find_spec("pyspark").origin)).parent  # type: ignore[union-attr]  # it is there
    program = command(str(find_java().program), spark, os.environ)
    os.execve(program[0], program, {**os.environ, "SPARK_HOME": str(spark)})  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except CuesError as error:
        sys.exit(f"cues-kafka: {error}")
