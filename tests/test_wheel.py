"""The first programs as pages show them: from the checkout, and from the built wheel in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cues_kafka.brokers.local.jars import versions

ROOT = Path(__file__).parents[1]
ADDRESS = "localhost:9092"
"""What these programs connect to; the tests put the address of their broker there."""

EXPECTED = "Order(id='a1', total=250)"
"""What the quick start prints: the one order that is big."""


def quick_start(bootstrap: str) -> str:
    """The first python block below the heading Quick start, with another address."""
    text = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    found = re.search(r"^#+ Quick start\n.*?^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE | re.IGNORECASE)
    assert found, "docs/quick-start.md has no python block below a heading `Quick start`"
    program = found[1]
    assert ADDRESS in program, f"the quick start does not connect to {ADDRESS}"
    return program.replace(ADDRESS, bootstrap)


def run(*command: str | Path, cwd: Path) -> str:
    """Output of a command; a failure shows all of it."""
    # Nothing of the checkout or of the running interpreter may leak into the empty environment.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if Path("/etc/ssl/certs/ca-certificates.crt").exists():  # as .ci/setup does, for uv
        env.setdefault("UV_SYSTEM_CERTS", "1")
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


def build_wheel(out: Path) -> Path:
    """The wheel of this checkout, built by the back end that is installed here."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def core_requirements(out: Path) -> Path:
    """The locked versions, as constraints for what the wheel asks for."""
    lock = (ROOT / ".ci" / "requirements" / "dev.lock").read_text()
    pins = re.findall(r"^[a-z0-9-]+==[^\\\n]+", lock, re.MULTILINE)
    constraints = out / "constraints.txt"
    constraints.write_text("\n".join(pins) + "\n")
    return constraints


def installer() -> str:
    """uv, which has the locked wheels in its cache."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    assert found, "uv is not installed in this environment; run `make test`, which sets it up"
    return found


def test_the_wheel_carries_all_that_the_package_reads(tmp_path: Path) -> None:
    """Schemas, type marker, broker's lock and poms, none of the tests and none of the proofs."""
    with zipfile.ZipFile(build_wheel(tmp_path)) as wheel:
        names = set(wheel.namelist())

    assert {
        "cues_kafka/py.typed",
        "cues_kafka/schemas/backing.avsc",
        "cues_kafka/schemas/error.avsc",
        "cues_kafka/schemas/error-1.avsc",
        "cues_kafka/schemas/staged.avsc",
        "cues_kafka/brokers/local/pom.xml",
        "cues_kafka/brokers/local/ivy.xml",
        *(f"cues_kafka/brokers/local/broker-{version}.lock" for version in versions()),
    } <= names
    assert {name.split("/")[0] for name in names} == {"cues_kafka", "cues_kafka-0.1.0.dist-info"}
    assert not [name for name in names if "explorer" in name or "simulation" in name or "proof" in name]
    assert not [name for name in names if "__pycache__" in name or name.endswith(".gitignore")]


def test_the_quick_start_runs_from_the_checkout(tmp_path: Path, kafka_cluster: str) -> None:
    """Against a real broker."""
    program = tmp_path / "shop.py"
    program.write_text(quick_start(kafka_cluster), encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert EXPECTED in done.stdout


@pytest.mark.timeout(300)
def test_the_quick_start_runs_from_the_wheel_in_an_empty_environment(tmp_path: Path, kafka_cluster: str) -> None:
    """Only the wheel and what it asks for, in the locked versions; the console script answers too."""
    uv, python = installer(), tmp_path / "venv" / "bin" / "python"
    wheel = build_wheel(tmp_path)
    run(uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    constraints = core_requirements(tmp_path)
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraint", constraints, wheel, cwd=tmp_path)
    program = tmp_path / "shop.py"
    program.write_text(quick_start(kafka_cluster), encoding="utf-8")

    assert EXPECTED in run(python, program, cwd=tmp_path)
    assert "broker" in run(python.with_name("cues-kafka"), "--help", cwd=tmp_path)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_readmes_commands_run_in_an_empty_environment(tmp_path: Path) -> None:
    """As they stand, in one shell, in the locked versions; the broker alone has a name and port of its own."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^```sh\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    name = f"readme-{tmp_path.parent.name}"
    program = tmp_path / "first.py"
    typed = (
        shown.replace("/tmp/first", str(tmp_path / "first"))
        .replace("broker up", f"broker up --name {name} --port 0")
        .replace("broker down", f"broker down --name {name}")
        .replace(
            "python examples/first.py",
            f"address=$(cues-kafka broker env --name {name} | sed -n 's/.*CUES_KAFKA_BOOTSTRAP=//p')\n"
            f'sed "s/{ADDRESS}/$address/" examples/first.py >{program}\n'
            f"python {program} >{tmp_path / 'printed'}",
        )
    )
    stop = f"trap 'cues-kafka broker down --name {name}' EXIT\n"
    typed = typed.replace("cues-kafka broker up", f"{stop}cues-kafka broker up")
    script = f"set -eu\nexport PIP_CONSTRAINT={core_requirements(tmp_path)}\n{typed}trap - EXIT\n"

    run("bash", "-c", script, cwd=ROOT)

    assert (tmp_path / "printed").read_text() in re.findall(r"^```\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert str(tmp_path) in run(
        tmp_path / "first" / "bin" / "python", "-c", "import cues_kafka; print(cues_kafka)", cwd=tmp_path
    )
