"""`where=` of a failed step: a line of the user's, where there is one."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from cues_kafka import Graph, Processor, Source
from cues_kafka.task.calling.failures import location
from cues_kafka.testing.tester import Tester


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


def test_function_is_named_where_what_it_returned_cannot_be_sent() -> None:
    """Nothing of the user's is running any more when an output is refused; a generator's own line is better."""

    def returned(value: str) -> object:
        return object() if value == "bad" else value

    def yielded(value: str) -> Iterator[object]:
        yield value
        yield object()

    for fn, lines in ((returned, {0}), (functools.partial(returned), {0}), (yielded, {0, 1, 2})):
        graph = Graph("g", Source("in"), Processor(fn, name="p", inputs="in", outputs="out"), errors="failed")
        tester = Tester(graph)
        tester.send("in", "bad")
        [error] = tester.run().errors()
        code = returned.__code__ if fn is not yielded else yielded.__code__
        assert error.text.startswith("The value is not JSON")
        assert error.location in {f"test_location.py:{code.co_name}:{code.co_firstlineno + line}" for line in lines}


def test_line_of_the_user_counts_before_the_function_of_an_output() -> None:
    """A class of the user's that raises while its value is written."""

    class Odd:
        def __str__(self) -> str:
            raise ValueError("odd")

    with pytest.raises(ValueError, match="odd") as caught:
        str(Odd())
    assert location(caught.value, module).startswith("test_location.py:__str__:")
    assert location(ValueError("never raised")) == ""
    assert location(ValueError("never raised"), len) == ""
    assert location(ValueError("never raised"), Graph) == ""
    assert location(ValueError("never raised"), module).startswith("test_location.py:module:")
