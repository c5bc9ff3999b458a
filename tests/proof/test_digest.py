"""A result of a proof counts for as long as what was run is the same program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.digest import digest, digest_of_rooms

PROGRAM = '''"""A module."""
LIMIT = 3
"""Of something."""


def twice(number: int) -> int:
    """Two times a number."""
    return number * 2  # not three times
'''


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""A module."""', '"""Another\n\nway to say it."""'),
        ('    """Two times a number."""\n', ""),
        ('"""Of something."""', '"""Of nothing."""'),
        ("  # not three times", ""),
        ("LIMIT = 3", "LIMIT = (\n    3\n)"),
    ],
)
def test_words_and_layout_do_not_change_a_digest(tmp_path: Path, old: str, new: str) -> None:
    """Otherwise a better docstring would cost hours of exploration."""
    assert old in PROGRAM
    first, second = written(tmp_path / "a.py", PROGRAM), written(tmp_path / "b.py", PROGRAM.replace(old, new))
    assert digest([first]) == digest([second])


def test_a_file_that_moves_does_not_change_a_digest(tmp_path: Path) -> None:
    """Nor does the order in which files are found."""
    one, other = written(tmp_path / "a.py", PROGRAM), written(tmp_path / "b.py", "import os\n")
    moved = written(tmp_path / "room" / "z.py", PROGRAM)
    assert digest([one, other]) == digest([other, moved])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("from json import loads\nimport os\n", "import os\nfrom json import loads\n", True),
        ("from cues_kafka.a import f", "from cues_kafka.b.c import f", True),
        ("from cues_kafka.a import f", "from cues_kafka.a import g", False),
        ("from cues_kafka.a import f", "from cues_kafka.a import f as g", False),
        ("from json import loads", "from pickle import loads", False),
    ],
)
def test_of_an_import_from_our_modules_the_names_count(tmp_path: Path, one: str, other: str, same: bool) -> None:
    """A module that moves to another room voids no result of those who import from it."""
    first, second = written(tmp_path / "a.py", one), written(tmp_path / "b.py", other)
    assert (digest([first]) == digest([second])) is same


@pytest.mark.parametrize(
    ("old", "new"),
    [("number * 2", "number * 3"), ("LIMIT = 3", "LIMIT = '3'"), ("number: int", "number"), ("LIMIT = 3", "")],
)
def test_another_program_has_another_digest(tmp_path: Path, old: str, new: str) -> None:
    """Each of these may change what runs."""
    assert old in PROGRAM
    first, second = written(tmp_path / "a.py", PROGRAM), written(tmp_path / "b.py", PROGRAM.replace(old, new))
    assert digest([first]) != digest([second])


SHARED = '''"""Ports."""
from typing import NamedTuple

Number = int


class Place(NamedTuple):
    at: Number


class Topic(NamedTuple):
    name: str
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("name: str", "title: str", True),
        ("at: Number", "on: Number", False),
        ("Number = int", "Number = float", False),
        ("from typing import NamedTuple", "from collections import namedtuple as NamedTuple", False),
    ],
)
def test_of_a_shared_module_only_what_is_taken_counts(tmp_path: Path, old: str, new: str, same: bool) -> None:
    """With all that it needs in turn. What another layer asks of its ports voids no result."""
    assert old in SHARED
    program = written(tmp_path / "a.py", "from shared import Place\n")
    first, second = written(tmp_path / "b.py", SHARED), written(tmp_path / "c.py", SHARED.replace(old, new))
    assert (digest([program], shared=("shared", [first])) == digest([program], shared=("shared", [second]))) is same


def test_a_shared_module_may_become_a_package(tmp_path: Path) -> None:
    """What is taken from it counts, in whichever of its files that is."""
    program = written(tmp_path / "a.py", "from cues_kafka.shared import Place\n")
    moved = written(tmp_path / "b.py", "from cues_kafka.shared.places import Place\n")
    numbers = "from typing import Any, NamedTuple\n\nNumber = int\n"
    places = f"from cues_kafka.shared.numbers import Number\n{SHARED.replace('Number = int', '')}"
    whole = [written(tmp_path / "whole.py", SHARED)]
    parts = [written(tmp_path / "parts" / "a.py", places), written(tmp_path / "parts" / "b.py", numbers)]

    before = digest([program], shared=("cues_kafka.shared", whole))

    assert digest([moved], shared=("cues_kafka.shared", parts)) == before


def test_a_room_that_has_moved_is_refused(tmp_path: Path) -> None:
    """A digest of nothing would never change."""
    written(tmp_path / "core" / "a.py", PROGRAM)

    assert digest_of_rooms(tmp_path, ["core"]) == digest([tmp_path / "core" / "a.py"])
    with pytest.raises(FileNotFoundError, match="runtime has no Python file"):
        digest_of_rooms(tmp_path, ["core", "runtime"])
