"""The examples of Avro, as they stand: without a registry, and with one that other clients write through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cues_kafka.testing.fixtures import KafkaFixture
from cues_kafka.testing.registry import TestRegistry

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "cues_kafka.cli.main")


def example(name: str, directory: Path, prefix: str, **replaced: str) -> Path:
    """A copy of an example with names of its own on the cluster."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    for topic in ("orders", "bills", "billing", "parcels"):
        text = text.replace(f'"{topic}', f'"{prefix}-{topic}')
    for old, new in replaced.items():
        text = text.replace({"kafka": "localhost:9092", "registry": "http://localhost:8081"}[old], new)
    file = directory / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    return file


def run(*command: str | Path, **variables: str) -> str:
    """What a program prints; a failure shows all of it."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_messages_of_an_older_schema_are_read_without_a_registry(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The field that they lack has its default."""
    printed = run(sys.executable, example("parcels", tmp_path, kafka.unique("p"), kafka=kafka.bootstrap))

    assert sorted(printed.splitlines()) == [
        "Postage(number=1, price=Decimal('4.90'))",
        "Postage(number=2, price=Decimal('9.80'))",
    ]


def test_an_application_bills_the_orders_of_another_team_by_a_registry(kafka: KafkaFixture, tmp_path: Path) -> None:
    """The command registers what the example writes; the other team's serializer registers its own schema."""
    prefix = kafka.unique("b")
    with TestRegistry() as registry:
        file = example("bills", tmp_path, prefix, kafka=kafka.bootstrap, registry=registry.url)
        place = {"CUES_KAFKA_BOOTSTRAP": kafka.bootstrap, "CUES_KAFKA_REGISTRY__URL": registry.url}
        said = run(*PROGRAM, "schemas", "register", f"{file}:graph", "--yes", **place)
        assert f"{prefix}-bills-value" in said
        run(*PROGRAM, "plan", f"{file}:graph", "--apply", **place)
        run(sys.executable, example("bills_theirs", tmp_path, prefix, kafka=kafka.bootstrap, registry=registry.url))
        printed = run(sys.executable, file)
        assert sorted(registry.subjects()) == [f"{prefix}-bills-value", f"{prefix}-orders-value"]

    assert sorted(printed.splitlines()) == [
        "Bill(order=1, gross=Decimal('25.00'))",
        "Bill(order=2, gross=Decimal('11.25'))",
    ]
