"""`system=`: what its factories do at a start, and what happens when they raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cues_kafka.errors import ConfigError, FactoryError, GraphError
from cues_kafka.task.making.system import System


class Database:
    """A factory whose first calls fail, as of a database that starts late."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.calls = 0
        self.closed = 0
        self._failures, self._error = failures, error

    def __call__(self) -> Database:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return self

    def close(self) -> None:
        self.closed += 1


def test_a_factory_that_raises_is_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each try names it with its exception."""
    database = Database(2, OSError("connection refused"))

    system = System({"db": database}, patience_s=30.0)

    assert system.values == {"db": database}
    assert [record.message for record in caplog.records] == [
        "system not opened name='db' error='OSError: connection refused' again_in_s=0.1",
        "system not opened name='db' error='OSError: connection refused' again_in_s=0.2",
    ]


def test_a_factory_that_keeps_raising_ends_the_start_with_its_exception_as_the_cause() -> None:
    """What was opened before it is closed, once."""
    first, error = Database(0, OSError()), OSError("connection refused")
    second = Database(1000, error)

    with pytest.raises(
        FactoryError, match=r"system=\{'db': ...\}: the factory still raised OSError: connection"
    ) as met:
        System({"log": first, "db": second}, patience_s=0.25)

    assert met.value.__cause__ is error
    assert second.calls == 2
    assert first.closed == 1


@pytest.mark.parametrize("error", [ConfigError("no such database"), GraphError("no such table")])
def test_a_factory_that_says_that_a_declaration_is_wrong_is_called_once(error: Exception) -> None:
    """No later try would end otherwise."""
    database = Database(1000, error)

    with pytest.raises(type(error)) as met:
        System({"db": database}, patience_s=30.0)

    assert met.value is error
    assert database.calls == 1


def needs_an_argument(url: str) -> str:
    """Cannot be a factory."""
    return url


@pytest.mark.parametrize("factory", [needs_an_argument, lambda **given: given["url"]])
def test_a_factory_with_arguments_is_refused_where_it_cannot_be_called(factory: Callable[..., Any]) -> None:
    """Its signature says so before it is called; an exception of its body is another thing."""
    with pytest.raises((ConfigError, FactoryError)) as met:
        System({"db": factory})

    assert type(met.value) is (ConfigError if factory is needs_an_argument else FactoryError)
