"""`where=` of a failed step: a line of the user's, where there is one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from cues_kafka.runtime.calling.failures import location


def module(path: Path, text: str) -> ModuleType:
    """A module in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_line_of_the_user_is_named_and_not_that_of_a_driver(tmp_path: Path) -> None:
    """A driver, a library of Python, and a helper of the user's in another file."""
    driver = module(tmp_path / "site-packages" / "driver.py", "def execute(run):\n    return run()\n")
    shop = module(tmp_path / "shop.py", "def book(execute, run):\n    return execute(run)\n")

    def refused() -> None:
        raise ValueError("duplicate key")

    with pytest.raises(ValueError, match="duplicate") as caught:
        shop.book(driver.execute, refused)
    assert location(caught.value).startswith("test_location.py:refused:")
    with pytest.raises(TypeError) as called:
        shop.book(driver.execute, None)
    assert location(called.value) == "shop.py:book:2"
    with pytest.raises(json.JSONDecodeError) as parsed:
        shop.book(json.loads, "{")
    assert location(parsed.value) == "shop.py:book:2"


def test_line_of_a_library_is_named_where_no_frame_is_the_users(tmp_path: Path) -> None:
    """Better than none."""
    driver = module(tmp_path / "site-packages" / "driver.py", "def execute(run):\n    return run()\n")
    with pytest.raises(TypeError) as called:
        driver.execute(None)
    error = called.value
    assert error.__traceback__ is not None
    assert location(error.with_traceback(error.__traceback__.tb_next)) == "driver.py:execute:2"
