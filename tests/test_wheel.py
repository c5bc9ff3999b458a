"""
What is built, installed alone: the first programs of the pages run, and each extra that is not there is named.

The first programs run from the checkout too, as the pages show them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from cues_kafka.brokers.local.jars import versions
from tests.install.extras import project

ROOT = Path(__file__).parents[1]
ADDRESS = "localhost:9092"
"""What these programs connect to; the tests put the address of their broker there."""

EXPECTED = "Order(id='a1', total=250)"
"""What the quick start prints: the one order that is big."""


class Built(NamedTuple):
    """The files that are published."""

    wheel: Path
    sdist: Path


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


def build(out: Path, tree: Path = ROOT) -> Built:
    """The wheel and the source distribution of a tree, built by the back end that is installed here."""
    run(sys.executable, "-m", "build", "--wheel", "--sdist", "--no-isolation", "--outdir", out, tree, cwd=out)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, sdist)


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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What this checkout makes, built once for all tests."""
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, built: Built) -> Path:
    """The interpreter of an environment that has only the wheel and the core's packages, in the locked versions."""
    return install(built.wheel, tmp_path_factory.mktemp("core"))


def install(package: str | Path, place: Path) -> Path:
    """Install a wheel or a source distribution into a new environment, alone or with extras; its interpreter."""
    uv, python = installer(), place / "venv" / "bin" / "python"
    run(uv, "venv", "--quiet", "--python", sys.executable, place / "venv", cwd=place)
    constraints = core_requirements(place)
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraint", constraints, package, cwd=place)
    return python


def test_the_wheel_carries_all_that_the_package_reads(built: Built) -> None:
    """Schemas, type marker, broker's lock and poms, none of the tests and none of the proofs."""
    with zipfile.ZipFile(built.wheel) as wheel:
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
    assert {name.split("/")[0] for name in names} == {"_cues_kafka.abi3.so", "cues_kafka", "cues_kafka-0.1.0.dist-info"}
    assert not [name for name in names if "explorer" in name or "simulation" in name or "proof" in name]
    assert not [name for name in names if "__pycache__" in name or name.endswith(".gitignore")]


def test_two_builds_are_the_same_bytes(built: Built, tmp_path: Path) -> None:
    """The second one is made of what the source distribution holds, with other times, rights, path and time zone."""
    out, tree = tmp_path / "again", tmp_path / "tree"
    out.mkdir()
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tree, filter="data")
    (root,) = tree.iterdir()
    for path in root.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(path.stat().st_mode & 0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        patch.setenv("PYTHONHASHSEED", "7")
        again = build(out, root)

    for one, other in zip(built, again, strict=True):
        assert one.name == other.name
        assert hashlib.sha256(one.read_bytes()).hexdigest() == hashlib.sha256(other.read_bytes()).hexdigest(), one.name


def test_the_source_distribution_holds_what_its_targets_need(built: Built) -> None:
    """`make test` runs in it: the scripts of set-up can be run, and the locks are there."""
    with tarfile.open(built.sdist) as archive:
        modes = {member.name.split("/", 1)[1]: member.mode for member in archive if "/" in member.name}
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout

    assert {"Makefile", ".ci/setup", ".ci/requirements/dev.lock", "tests/conftest.py", "docs/install.md"} <= {*modes}
    assert modes[".ci/setup"] & 0o111
    if listed:
        assert {*modes} - {"PKG-INFO"} <= {*listed.split("\0")}
        assert {name for name in listed.split("\0") if name} <= {*modes}


@pytest.mark.full
@pytest.mark.timeout(300)
def test_the_quick_start_runs_from_the_source_distribution(built: Built, tmp_path: Path, kafka_cluster: str) -> None:
    """In an empty environment, built in isolation as an installer does it."""
    program = tmp_path / "shop.py"
    program.write_text(quick_start(kafka_cluster), encoding="utf-8")

    assert EXPECTED in run(install(built.sdist, tmp_path), program, cwd=tmp_path)


def test_the_quick_start_runs_from_the_checkout(tmp_path: Path, kafka_cluster: str) -> None:
    """Against a real broker."""
    program = tmp_path / "shop.py"
    program.write_text(quick_start(kafka_cluster), encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, program], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert EXPECTED in done.stdout


@pytest.mark.timeout(300)
def test_the_quick_start_runs_from_the_wheel_in_an_empty_environment(
    core: Path, tmp_path: Path, kafka_cluster: str
) -> None:
    """Only the wheel and what it asks for; the console script and the module answer too."""
    program = tmp_path / "shop.py"
    program.write_text(quick_start(kafka_cluster), encoding="utf-8")

    assert EXPECTED in run(core, program, cwd=tmp_path)
    assert "broker" in run(core.with_name("cues-kafka"), "--help", cwd=tmp_path)
    planned = run(core, "-m", "cues_kafka", "plan", "shop.py:graph", "--bootstrap", kafka_cluster, cwd=tmp_path)
    assert planned.startswith("Graph shop")


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


# Extras that are not installed.

NEEDS = (ROOT / "tests" / "install" / "needs.py").read_text(encoding="utf-8")
"""A graph for each extra that a declaration needs."""

GRAPHS = {
    "disk": ["disk"],
    "jsonschema": ["jsonschema"],
    "registry": ["registry"],
    "postgres": ["postgres", "upserts"],
    "mysql": ["mysql", "outbox"],
    "http": ["http"],
    "arrow": ["arrow"],
    "blobs": ["blobs"],
    "delta": ["delta"],
    "mqtt": ["mqtt", "to_mqtt"],
    "rabbitmq": ["rabbitmq", "to_rabbitmq"],
    "amqp": ["amqp", "to_amqp"],
    "ibmmq": ["ibmmq", "to_ibmmq"],
    "disk,postgres": ["several"],
}
"""By extra, the graphs of tests/install/needs.py that need it."""

MODULES = {
    "spark": ["import cues_kafka.spark", "from pyspark.sql import functions"],
    "protobuf": ["from google.protobuf import descriptor_pb2"],
    "testing": ["import cues_kafka.testing.fixtures", "import cues_kafka.testing.targets"],
    "postgres": ["import psycopg"],
    "testing-containers": ["from cues_kafka.testing import KafkaContainer; KafkaContainer().start()"],
}
"""By extra, what the module of a graph imports."""

NOWHERE = ["--bootstrap", "127.0.0.1:1"]
"""A cluster that does not answer: what is not installed is told before it is asked."""

COMMANDS = {
    "postgres": ["plan needs.py:postgres --offline", "run needs.py:postgres --workers 2"],
    "spark": ["run needs.py:core --engine spark --checkpoint checkpoints"],
    "metrics": ["run needs.py:core --http 0", "run needs.py:core --http 0 --workers 2"],
    "spans": ["run needs.py:core --spans 1"],
    "openlineage": ["run needs.py:core --openlineage http://127.0.0.1:1"],
    "registry": ["schemas check needs.py:registry", "schemas register needs.py:core"],
    "jsonschema,registry": ["schemas check needs.py:jsonschema", "schemas register needs.py:jsonschema --yes"],
    "local": ["broker up --name never-made --port 0"],
}
"""By extra, commands that need it, most of them with a graph that needs none."""

TRIED = """
import contextlib, gc, io, json, os, sys, typer.main
import cues_kafka.running.start
from cues_kafka.cli.main import app

program = typer.main.get_command(app)
with contextlib.redirect_stdout(io.StringIO()):  # what it imports, it has imported for the processes below
    program(["plan", "needs.py:core", "--offline"], standalone_mode=False)
gc.freeze()
os.environ["PATH"] = os.getcwd()  # no Java there
os.environ.pop("JAVA_HOME", None)

def tried(words):
    "Exit code and output of the program with these words, in a process of its own; it is imported once."
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1), os.dup2(writer, 2)
        code = 70
        try:
            program(words, prog_name="cues-kafka")
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with open(reader) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text

print(json.dumps([tried(words) for words in json.loads(sys.argv[1])]))
"""


def tried(core: Path, place: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and output of each command in the core installation, where no Java is found."""
    (place / "needs.py").write_text(NEEDS, encoding="utf-8")
    found: list[tuple[int, str]] = json.loads(run(core, "-c", TRIED, json.dumps(commands), cwd=place))
    return found


def assert_named(extra: str, command: list[str], code: int, text: str) -> None:
    """The exit code is that of a wrong setting, and one sentence says what installs the extra, and is all."""
    assert code == 2, f"{command}: {code}\n{text}"
    assert f"pip install 'cues-kafka[{extra}]'" in text, f"{command}\n{text}"
    assert "Traceback" not in text
    if extra != "local":  # where Java was looked for takes lines
        assert len(re.findall(r"^cues-kafka: ", text, re.MULTILINE)) == 1, text
        assert len(text.splitlines()) <= 2, text  # the second one is that of the user's import


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_graph_whose_extra_is_not_installed_is_refused_with_the_extra(core: Path, tmp_path: Path, verb: str) -> None:
    """By each command before it connects; several extras come in one sentence."""
    cases = [(extra, graph) for extra, graphs in GRAPHS.items() for graph in graphs]
    commands = [[verb, f"needs.py:{graph}", *NOWHERE] for _, graph in cases]

    for (extra, _), command, (code, text) in zip(cases, commands, tried(core, tmp_path, commands), strict=True):
        assert_named(extra, command, code, text)
        assert len(text.splitlines()) == 1, text


def test_a_command_whose_extra_is_not_installed_names_the_extra(core: Path, tmp_path: Path) -> None:
    """With options, and also where the graph needs none."""
    cases = [(extra, line.split()) for extra, lines in COMMANDS.items() for line in lines]
    commands = [[*words, *NOWHERE] if words[0] != "broker" else words for _, words in cases]

    for (extra, _), command, (code, text) in zip(cases, commands, tried(core, tmp_path, commands), strict=True):
        assert_named(extra, command, code, text)


def test_a_module_that_imports_what_an_extra_brings_is_refused_with_the_extra(core: Path, tmp_path: Path) -> None:
    """By commands with exit code 2, and in a program by an error that is an ImportError, too."""
    cases = [(extra, line) for extra, lines in MODULES.items() for line in lines]
    for number, (_, line) in enumerate(cases):
        (tmp_path / f"module{number}.py").write_text(f"{line}\n", encoding="utf-8")
    verbs = [["plan"], ["run"], ["schemas", "check"]]
    commands = [[*verb, f"module{number}.py:graph", *NOWHERE] for verb in verbs for number in range(len(cases))]
    found = tried(core, tmp_path, commands)

    for (extra, _), command, (code, text) in zip(cases * len(verbs), commands, found, strict=True):
        assert_named(extra, command, code, text)
    program = "try:\n    import cues_kafka.spark\nexcept ImportError as error:\n    print(type(error).__name__, error)"
    assert re.match(r"MissingExtra .*pip install 'cues-kafka\[spark\]'$", run(core, "-c", program, cwd=tmp_path))


def test_a_program_that_imports_what_an_extra_brings_ends_with_one_sentence(core: Path, tmp_path: Path) -> None:
    """Python ends with 1. Its one traceback has the line of the program; a library sets no exit codes."""
    programs = {
        "spark": "import cues_kafka.spark",
        "testing": "import cues_kafka.testing.targets",
        "testing-containers": "from cues_kafka.testing import KafkaContainer; KafkaContainer().start()",
        "mqtt": "from cues_kafka import Mqtt; Mqtt('mqtt://h').login()",
        "disk": "from cues_kafka.state.on_disk import library; library()",
    }
    for extra, program in programs.items():
        done = subprocess.run([core, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.count("Traceback") == 1, done.stderr
        assert done.stderr.splitlines()[-1].startswith("cues_kafka.errors.MissingExtra: "), done.stderr
        assert done.stderr.endswith(f"pip install 'cues-kafka[{extra}]'\n"), done.stderr


def test_each_extra_is_tried_without_its_packages() -> None:
    """A new extra needs a case here; the demos are in no wheel, so theirs has none."""
    tried_here = {name for group in (GRAPHS, MODULES, COMMANDS) for extras in group for name in extras.split(",")}

    assert {*project()["optional-dependencies"]} - tried_here == {"demo"}


def test_a_graph_without_extras_is_planned_by_the_core(core: Path, tmp_path: Path) -> None:
    """A processor of DataFrames too: other machines run it, and Spark is needed there."""
    commands = [["plan", f"needs.py:{graph}", "--offline"] for graph in ("core", "frames")]

    assert [code for code, _ in tried(core, tmp_path, commands)] == [0, 0]
