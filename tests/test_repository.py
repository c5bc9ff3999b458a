"""What is committed: nothing of one machine, nothing unfinished, nothing unexpected at the top."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TOP_LEVEL = {
    ".ci", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "benchmarks", "cues_kafka", "docker",
    "docs", "examples", "pyproject.toml", "schemas", "tests",
}  # fmt: skip

# Put together here, so that this file does not hold what it looks for.
MACHINE = re.compile(
    r"(?<![\w.])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers", "fa" + "rm"]) + r")/\w"
    r"|index[-]url\s*=|extra[-]index|find[-]links\s*=|\b(?:pypi|files)\.(?:org|pythonhosted)|repo1\.maven|registry\s*=\s*.?http"
)
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")


def committed() -> list[Path]:
    """Files that git knows; where there is no git (an unpacked source distribution), all files."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return [path for path in names if path.is_file()]


@cache
def texts() -> dict[Path, str]:
    """Every committed text file."""
    binary = {".png", ".gif", ".jar"}
    return {path: path.read_text(encoding="utf-8") for path in committed() if path.suffix not in binary}


def lines(pattern: re.Pattern[str]) -> Iterator[str]:
    """`file:number: text` of every line of every committed text file with a match."""
    for path, text in texts().items():
        if pattern.search(text):
            for number, line in enumerate(text.splitlines(), 1):
                if pattern.search(line):
                    yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"


def test_the_top_level_has_only_what_is_expected() -> None:
    """Everything else has a folder."""
    assert {path.relative_to(ROOT).parts[0] for path in committed()} <= TOP_LEVEL


def test_no_committed_file_names_a_path_or_an_index_of_one_machine() -> None:
    """Mirrors and home directories belong to their machine."""
    found = [*lines(MACHINE)]

    assert not found, "\n".join(found)


def test_no_committed_file_is_unfinished() -> None:
    """What is missing is an issue, not a comment."""
    found = [*lines(UNFINISHED)]

    assert not found, "\n".join(found)


def test_every_locked_package_has_hashes_and_no_host() -> None:
    """`uv.lock` would name both; ours are requirement files."""
    locks = sorted((ROOT / ".ci" / "requirements").glob("*.lock"))
    names = ["amqp", "build", "dev", "docs", "kubernetes", "matrix", "pyright", "sbom", "uv"]
    assert [lock.stem for lock in locks] == names
    peers = [ROOT / "benchmarks" / "peers" / "locks" / f"{name}.lock" for name in ("faust", "quix")]
    for lock in [*locks, *peers]:
        text = lock.read_text()
        assert "://" not in text
        assert " @ " not in text
        for requirement in re.split(r"(?<!\\)\n", text.strip()):
            assert re.match(r"[a-z0-9-]+==\S+", requirement)
            assert "--hash=sha256:" in requirement, requirement.splitlines()[0]


def test_what_two_locks_hold_has_one_version() -> None:
    """They are installed into one environment."""
    pins: dict[str, set[str]] = {}
    for name in ("build.lock", "dev.lock"):
        for package, version in re.findall(
            r"^([a-z0-9-]+)==(\S+)", (ROOT / ".ci" / "requirements" / name).read_text(), re.MULTILINE
        ):
            pins.setdefault(f"{package} of {name}", set()).add(version)
    for place in [place for place in pins if place.endswith("build.lock")]:
        package = place.split(" ")[0]
        assert pins[place] == pins.get(f"{package} of dev.lock", pins[place])


@pytest.mark.parametrize("name", [".ci/run", ".ci/setup", ".ci/lock"])
def test_scripts_stop_at_the_first_error(name: str) -> None:
    """And at unset variables, and inside pipes."""
    script = ROOT / name

    assert "set -euo pipefail" in script.read_text()
    assert script.stat().st_mode & 0o111


BESIDE = re.compile(r"""Path\(__file__\)(?:\.resolve\(\))?\.(?:with_name\(|parent / )["']([\w.-]+)["']""")
"""A file that a module takes from its own folder."""


def test_files_that_modules_take_from_their_folder_are_there() -> None:
    """One that stayed where its module has been is missed only when it is needed."""
    package = [(path, text) for path, text in texts().items() if path.is_relative_to(ROOT / "cues_kafka")]
    named = [(path, name) for path, text in package if path.suffix == ".py" for name in BESIDE.findall(text)]

    assert named
    assert [f"{path.relative_to(ROOT)}: {name}" for path, name in named if not (path.parent / name).exists()] == []
