"""Servers of Spark Connect for tests, at ports of their own, and sessions of them."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pyspark

from tests.fault.support import until

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


def connect_session(server: str, conf: Mapping[str, str]) -> Any:
    """A session of a server by its address `sc://...`, or of a new one in this process's JVM with the given master."""
    from pyspark.sql.connect.session import SparkSession

    options = dict(conf)
    if not server.startswith("sc://"):
        port = _free_port()
        os.environ["SPARK_LOCAL_REMOTE"] = "1"  # so that the end of the session ends the server
        options |= _bound(port)
        SparkSession._start_connect_server(server, options)
        server = f"sc://localhost:{port}"  # by this name alone a client sends its token without TLS
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    settings = {name: value for name, value in options.items() if name.startswith("spark.sql.")}
    builder: Any = SparkSession.builder
    return builder.config(map=settings).remote(server).getOrCreate()


@contextmanager
def connect_server(directory: Path, conf: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """A server in a process of its own; its address, and what the environment of its clients has."""
    port, secret = _free_port(), {TOKEN: uuid4().hex}
    settings = [text for name, value in {**conf, **_bound(port)}.items() for text in ("--conf", f"{name}={value}")]
    kind = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", kind, "--master", "local[2]"]
    with (directory / "server.log").open("w") as log:
        process = psutil.Popen(
            [*command, *settings],
            env={**os.environ, **secret, "SPARK_LOCAL_DIRS": str(directory), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until(lambda: _listens(port) or not process.is_running(), "the server listens", 120)
            assert process.poll() is None, (directory / "server.log").read_text()[-4_000:]
            yield f"sc://localhost:{port}", secret
        finally:
            for one in (*process.children(recursive=True), process):
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()


def _bound(port: int) -> dict[str, str]:
    return {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
