"""`docker/kubernetes/spark` without a cluster: a server starts the pods that Spark asks for as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cues_kafka.brokers.local.ports import free_ports
from cues_kafka.testing.fixtures import KafkaFixture
from tests.fault.support import Program, until
from tests.kubernetes.manifests import HERE, KUBERNETES, ROOT, named, pods
from tests.spark.kubernetes_server import Asked, KubernetesServer, here

SPARK = KUBERNETES / "spark"


@pytest.mark.full
@pytest.mark.timeout(900)  # three JVMs start, and the machine may be busy
def test_a_graph_runs_on_executors_that_kubernetes_starts(kafka: KafkaFixture, tmp_path: Path) -> None:
    """By the command, variables and settings of the driver's pod, the template of executors, and the role's rights."""
    [driver] = [pod for pod in pods() if pod.name == "totals"]
    [template] = [pod for pod in pods() if pod.name == "executor"]
    http, rpc, blocks = free_ports(3)
    (tmp_path / "cues-kafka.toml").write_text("")
    settings = (SPARK / "spark-defaults.conf").read_text("utf-8").replace("/etc/spark/", f"{tmp_path}/")
    settings = settings.replace("7078", str(rpc)).replace("7079", str(blocks))
    settings = re.sub(r"(memory +)1g", r"\g<1>512m", settings)
    (tmp_path / "spark-defaults.conf").write_text(settings)
    (tmp_path / "executor.yaml").write_text((SPARK / "executor.yaml").read_text("utf-8"))
    (tmp_path / "pods").mkdir()
    conf = str(tmp_path / "no-files")
    with KubernetesServer(tmp_path / "pods", lambda word: conf if word == "/opt/spark/conf" else here(word)) as server:
        server.put("pods", {"metadata": {"name": driver.environment["POD_NAME"], "namespace": "shop"}, "spec": {}})
        changed = {
            "k8s://https://kubernetes.default.svc": f"k8s://{server.address}",
            "file:///data/checkpoints": (tmp_path / "checkpoints").as_uri(),
            "0.0.0.0:9100": f"127.0.0.1:{http}",
            "/app/totals.py:graph": f"{HERE['/app/totals.py']}:graph",
        }
        given = driver.environment | {
            "CUES_KAFKA_FILE": str(tmp_path / "cues-kafka.toml"),
            "CUES_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "SPARK_CONF_DIR": str(tmp_path),
            "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CUES_", "SPARK_"))}
        words = [changed.get(word, word) for word in driver.command]
        with Program(["setpriv", "--pdeathsig", "KILL", *words], env=inherited | given) as program:
            until(lambda: len(server.running) == 2, "two executors run", 300)
            program.expect("ready after", 300)

            check = [sys.executable, str(HERE["/app/totals.py"]), "--bootstrap", kafka.bootstrap, "--timeout", "300"]
            done = subprocess.run(
                check,
                env=inherited | {"PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
                timeout=400,
            )
            assert "each customer's totals are exact" in done.stdout, done.stdout + done.stderr

            program.process.terminate()
            assert program.process.wait(driver.spec["terminationGracePeriodSeconds"]) == 0
        until(lambda: not server.running, "no executor is left", 60)

        for name, container in server.started.items():
            assert container["command"] == template.container["command"], name
            assert container["args"] == ["executor"]
            assert container["image"] == driver.environment["EXECUTOR_IMAGE"]
            assert container["securityContext"] == template.container["securityContext"]
            assert container["workingDir"] == "/tmp"
        rules = named("Role", "totals-driver")["rules"]
        allowed = {Asked(verb, kind) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
        assert server.asked - allowed == set()
        assert {kind for _, kind in server.asked} == {kind for rule in rules for kind in rule["resources"]}
