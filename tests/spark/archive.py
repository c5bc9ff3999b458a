"""A class archive for Spark's JVMs in tests: with one, a session takes half the processor time to its first results.

`python -m tests.spark.archive` makes it, once for each environment. A JVM of another Java ignores it, so the tests on
another Java name a file of their own in `CUES_KAFKA_TEST_ARCHIVE`. It also compiles the modules of Spark's Python
processes: each process compiled pyspark in a second, and a query starts several.
"""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

QUICK = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM of a test lives for a minute: compiling it well takes longer than it saves."""

ARCHIVE = Path(os.environ.get("CUES_KAFKA_TEST_ARCHIVE") or Path(sys.prefix) / ".cache" / "spark.jsa")

MOST_S = 600.0
"""How long making it may take; it takes 20 s, and two to three times that beside other programs."""


def jvm_options() -> str:
    """Options of a JVM that lives for one test."""
    return f"{QUICK} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if _is_there() else QUICK


def _is_there() -> bool:
    """An empty file says that this Java cannot make one."""
    return ARCHIVE.exists() and ARCHIVE.stat().st_size > 0


def zips() -> list[Path]:
    """The files that Spark puts before everything else on the path of its Python processes, with sources only."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "python" / "lib").glob("*.zip"))


def with_compiled(path: Path) -> None:
    """
    Put the compiled form of each module but tests into a zip file, beside its source; once for each environment.

    A Python of another version reads the sources. The file is replaced and not changed, for it may be a link to one
    that several environments share.
    """
    with ZipFile(path) as old, tempfile.TemporaryDirectory(dir=path.parent) as name:
        if any(one.endswith(".pyc") for one in old.namelist()):
            return
        made = Path(name, path.name)
        with ZipFile(made, "w") as new:
            for one in old.infolist():
                data = old.read(one)
                new.writestr(one.filename, data)
                if one.filename.endswith(".py") and "/tests/" not in one.filename:
                    source, compiled = Path(name, "source.py"), Path(name, "compiled.pyc")
                    source.write_bytes(data)
                    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
                    py_compile.compile(
                        str(source), str(compiled), str(path / one.filename), doraise=True, invalidation_mode=unchecked
                    )
                    new.write(compiled, f"{one.filename}c")
        made.replace(path)


def main() -> None:
    """Run a session that loads what tests load, and let its JVM write the archive when it ends."""
    for path in zips():
        with_compiled(path)
    if ARCHIVE.exists():
        return
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as name:
        made = Path(name) / ARCHIVE.name
        options = f"{QUICK} -Djava.io.tmpdir={name} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_DIRS": name}
        command = [sys.executable, "-m", "tests.spark.archive", "--load", name]
        quiet = subprocess.DEVNULL
        try:
            subprocess.run(command, env=environment, stdout=quiet, stderr=quiet, timeout=MOST_S, check=False)
        except subprocess.TimeoutExpired:  # that says nothing about this Java
            print(f"No class archive within {MOST_S:g} s: Spark's JVMs of the tests start slower. It is tried again.")
            return
        if not made.exists():
            print("No class archive: Spark's JVMs of the tests start slower.")
            made.touch()
        made.rename(ARCHIVE)


def load(directory: Path) -> None:
    """Queries over rows, files, streams and state, with Python functions; returns when the JVM has ended."""
    from pyspark.sql import SparkSession, functions

    import cues_kafka.spark  # noqa: F401 - names the interpreter of Spark's Python processes

    builder: SparkSession.Builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.master("local[2]").getOrCreate()
    rows = session.createDataFrame([(n, f"k{n % 3}") for n in range(20)], "n long, k string")
    rows.withColumn("at", functions.current_timestamp()).write.parquet(str(directory / "rows"))
    stream = session.readStream.schema("n long, k string, at timestamp").parquet(str(directory / "rows"))
    counts = stream.groupBy("k").count().select(functions.to_json(functions.struct("*")).alias("value"))

    def keep(batch: Any, number: int) -> None:
        batch.persist().mapInArrow(lambda parts: parts, batch.schema).collect()
        batch.write.parquet(str(directory / f"counts-{number}"))

    writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).foreachBatch(keep).start().awaitTermination()
    rows.join(rows.withColumnRenamed("n", "m"), "k").rdd.map(lambda row: row.n).sum()
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        load(Path(sys.argv[2]))
    else:
        main()
