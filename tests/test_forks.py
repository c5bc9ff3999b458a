"""Programs that are forked: what they print, how they fail, and what they do at their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.forks import run_program


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """It imports its neighbour, prints its arguments, then a line in a thread, and one at its end."""
    (tmp_path / "neighbour.py").write_text("greeting = 'hello'\n")
    file = tmp_path / "program.py"
    file.write_text(
        "import atexit, sys, threading\nfrom neighbour import greeting\n"
        "assert __name__ == '__main__'\natexit.register(print, 'at the end')\nprint(greeting, *sys.argv[1:])\n"
        "if sys.argv[1:] == ['fail']: raise SystemExit(3)\n"
        "threading.Timer(0.05, print, ['thread']).start()\n"
    )
    return file


def test_program_runs_to_its_end_with_its_threads(program: Path) -> None:
    """As Python runs a file."""
    assert run_program(program, "a", "b").splitlines() == ["hello a b", "thread", "at the end"]


def test_program_that_fails_is_shown_with_what_it_printed(program: Path) -> None:
    """With its exit code."""
    with pytest.raises(AssertionError, match=r"(?s)ended with 3\nhello fail\n"):
        run_program(program, "fail")
