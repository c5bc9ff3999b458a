"""The lines of the page that bring S3 to Spark: Spark itself fetches the jars, and checkpoints are in a bucket."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import fsspec
import pyspark
import pytest

from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Record, committed_all, create, produce
from tests.servers.fixtures import S3Bucket
from tests.spark.standalone import LOOPBACK
from tests.spark.standalone_graph import WIDTH
from tests.spark.test_spark_docs import SPARK_PAGE
from tests.test_docs import PROGRAM, ROOT, blocks

HERE = Path(__file__).parent


def settings() -> str:
    """What the page shows."""
    [block] = blocks("properties", SPARK_PAGE)
    return block.text


def test_version_of_the_jar_is_that_of_pyspark() -> None:
    """As the page says: the version of `hadoop-client-api` in `jars` of pyspark."""
    [version] = re.findall(r"^spark\.jars\.packages +org\.apache\.hadoop:hadoop-aws:(\S+)$", settings(), re.MULTILINE)
    jars = Path(pyspark.__file__).parent / "jars"
    assert [one.name for one in jars.glob("hadoop-client-api-*.jar")] == [f"hadoop-client-api-{version}.jar"]


@pytest.mark.full
@pytest.mark.timeout(900)  # the AWS SDK has hundreds of megabytes, which are fetched once
def test_checkpoints_are_in_a_bucket_by_the_lines_of_the_page(
    kafka: KafkaFixture, s3: S3Bucket, tmp_path: Path
) -> None:
    """Only the address of the server is another one. All that is there is delivered, and the command ends with 0."""
    name, conf = kafka.unique("packages"), tmp_path / "conf"
    conf.mkdir()
    text = settings().replace("https://s3.example.com", s3.server.endpoint)
    (conf / "spark-defaults.conf").write_text(f"{text}\nspark.hadoop.fs.s3a.buffer.dir {tmp_path}/s3a\n")
    for topic in ("in", "doubled", "sums"):
        create(kafka.bootstrap, f"{name}.{topic}", WIDTH)
    records = [Record(json.dumps({"n": n}).encode(), partition=n % WIDTH) for n in range(20)]
    produce(kafka.bootstrap, f"{name}.in", records)

    command = [*PROGRAM, "run", f"{HERE / 'standalone_graph.py'}:graph", "--bootstrap", kafka.bootstrap]
    command += ["--engine", "spark", "--master", "local[2]", "--only", "add"]
    command += ["--checkpoint", f"s3a://{s3.name}/packages", "--trigger", "available-now"]
    given = {"CLUSTER_GRAPH": name, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": LOOPBACK, "TMPDIR": str(tmp_path)}
    given |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **given}, capture_output=True, text=True, check=False, timeout=850
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = [json.loads(one.value() or b"") for one in committed_all(kafka.bootstrap, [f"{name}.sums"])[f"{name}.sums"]]
    newest = Counter[str]()
    for one in found:
        newest[one["rest"]] = max(newest[one["rest"]], one["total"])
    assert newest == {str(rest): sum(range(rest, 20, 3)) for rest in range(3)}
    written = fsspec.filesystem("s3", skip_instance_cache=True, **s3.options).find(s3.name)
    assert any(f"/{name}.add/commits/0" in path for path in written), written
