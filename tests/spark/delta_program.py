"""
Whether builds of Delta Lake run with this Spark, and whether batches in them count once when their writer is killed.

Run ``python -m tests.spark.delta_program io.delta:delta-spark_2.13:4.4.0``; several builds may be named. Maven fetches
their jars. Of each build a line says what happened. The exit code is 0 if one of them works.

A query writes batches with ``foreachBatch``, each with `txnAppId` and `txnVersion`. Its driver and its JVM are killed
before a batch is written, and after it is written, when Spark does not yet know. Delta must then leave the repeated
batch out. Without the two options the same kills must double rows: else the check would find nothing.

``--python`` names another interpreter for the children, such as one with another pyspark. They need nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

FILES, ROWS = 4, 5
"""A batch reads one file."""

KILLS: Final = ("before:1", "after:2")
"""When the writer is killed, and at which batch; the next one goes on. The second kill doubles rows without options."""

NAME = "delta-check"
TIMEOUT_S = 240.0
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>check</groupId><artifactId>delta</artifactId>
<version>1</version><dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency></dependencies></project>"""


class Failed(Exception):
    """A build that cannot be fetched or does not run; the text says why."""


class Place(NamedTuple):
    """
    Where one query is.

    Attributes:
        root: has the directories of its input, its checkpoint and its table.
        jars: of the build, with commas between them.
        python: the interpreter of its writers.
        once: whether batches have `txnAppId` and `txnVersion`.
    """

    root: Path
    jars: str
    python: str
    once: bool

    def run(self, kill: str = "") -> list[int] | None:
        """
        Run a writer, until all input is written, and give the rows of the table; None: it was killed.

        Raises:
            Failed: it has ended in another way.
        """
        given = [str(self.root), self.jars, kill, *(["once"] if self.once else [])]
        ended = subprocess.run(
            [self.python, __file__, "--write", *given], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if kill and ended.returncode == -signal.SIGKILL:
            return None
        if ended.returncode:
            raise Failed(_reason(ended.stderr))
        found: list[int] = json.loads(ended.stdout.splitlines()[-1])
        return found


def _reason(text: str) -> str:
    """The first error of the JVM in a driver's output, such as a method that is missing; else its last line."""
    found = re.search(r"java\.lang\.\w*Error: [^\n]*", text)
    return found[0].strip() if found else (text.strip().splitlines() or ["no reason given"])[-1]


def fetched(build: str, directory: Path, held: Collection[str]) -> str:
    """
    The jars of a build, fetched by Maven, with commas between them.

    Args:
        build: group, artifact and version.
        directory: where they are put.
        held: names of jars that Spark has itself, as `_artifact` gives them. They are left out.

    Raises:
        Failed: Maven does not find it.
    """
    directory.mkdir()
    (directory / "pom.xml").write_text(POM.format(*build.split(":")))
    ended = subprocess.run(
        [
            "mvn",
            "-B",
            "-q",
            "-U",
            "-Dstyle.color=never",
            "-f",
            str(directory),
            PLUGIN,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={directory}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        found = re.search(r"(?:Could not find artifact|could not be resolved:) [\w.:-]+", ended.stdout)
        raise Failed(f"Maven cannot fetch it: {found[0] if found else _reason(ended.stdout)}")
    return ",".join(str(file) for file in sorted(directory.glob("*.jar")) if _artifact(file.name) not in held)


def _artifact(jar: str) -> str:
    """The name of a jar without its version."""
    return re.split(r"-\d", jar, maxsplit=1)[0]


def verdict(build: str, directory: Path, python: str, held: Collection[str]) -> str:
    """
    What a build does; empty: each row is in the table once.

    Raises:
        Failed: it cannot be fetched, or does not run.
    """
    jars = fetched(build, directory, held)
    wanted = list(range(FILES * ROWS))
    for once in (True, False):
        place = Place(directory / ("once" if once else "often"), jars, python, once)
        (place.root / "input").mkdir(parents=True)
        for file in range(FILES):
            rows = [json.dumps({"id": file * ROWS + row}) for row in range(ROWS)]
            (place.root / "input" / f"{file}.json").write_text("\n".join(rows))
        for kill in KILLS if once else KILLS[1:]:
            if place.run(kill) is not None:
                return f"the writer was not killed at {kill}"
        found = sorted(place.run() or ())
        if once and found != wanted:
            return f"{len(wanted)} rows were written, and the table has {found}"
        if not once and found == wanted:
            return "without txnAppId the kills double no row, so they show nothing"
    return ""


def tried(builds: Sequence[str], python: str) -> Iterator[tuple[str, bool]]:
    """Of each build: a line that says what happened, and whether it works."""
    asked = [python, "-c", "import pyspark; print(pyspark.__version__, pyspark.__path__[0])"]
    spark, home = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    held = {_artifact(file.name) for file in (Path(home) / "jars").glob("*.jar")}
    for build in builds:
        with tempfile.TemporaryDirectory(prefix="cues-kafka-delta-") as directory:
            try:
                why = verdict(build, Path(directory) / "build", python, held)
            except Failed as error:
                why = str(error)
        kills = f"each row once through {len(KILLS)} kills of the writer"
        yield f"{build} with pyspark {spark}: {why or kills}", not why


def write(root: Path, jars: str, kill: str, *, once: bool) -> None:
    """Write what is in the input in batches, be killed on the way if that is asked, and print the rows of the table."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    def die(moment: str, batch: int) -> None:
        if kill == f"{moment}:{batch}":
            gateway: Any = session.sparkContext._gateway
            os.kill(gateway.proc.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def each(frame: Any, batch: int) -> None:
        die("before", batch)
        writer = frame.write.format("delta").mode("append")
        if once:
            writer = writer.option("txnAppId", NAME).option("txnVersion", batch)
        writer.save(str(root / "table"))
        die("after", batch)

    frame = session.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).json(str(root / "input"))
    query = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(root / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps([row.id for row in session.read.format("delta").load(str(root / "table")).collect()]))


def main(arguments: Sequence[str]) -> int:
    """Try builds, or be the writer that is killed."""
    if arguments[:1] == ["--write"]:
        root, jars, kill, *once = arguments[1:]
        write(Path(root), jars, kill, once=bool(once))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", help="group:artifact:version")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the children")
    given = parser.parse_args(arguments)
    works = False
    for line, fine in tried(given.builds, given.python):
        print(line, flush=True)
        works |= fine
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
