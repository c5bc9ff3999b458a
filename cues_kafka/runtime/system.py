"""The graph's `system=`: opened once per worker process, closed with it, in reverse order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from cues_kafka.errors import ConfigError


class System:
    """
    What the factories of `system=` gave.

    Attributes:
        values: by name.
    """

    def __init__(self, factories: Mapping[str, Callable[[], Any]]) -> None:
        """
        Open everything.

        Raises:
            ConfigError: a factory raised; what was open before it is closed.
        """
        self._stack = ExitStack()
        self.values: dict[str, Any] = {}
        for name, factory in factories.items():
            try:
                self.values[name] = self._open(factory())
            except Exception as error:
                self._stack.close()
                raise ConfigError(
                    f"system={{{name!r}: ...}}: the factory raised {type(error).__name__}: {error}"
                ) from error

    def _open(self, made: Any) -> Any:
        if isinstance(made, AbstractContextManager):
            return self._stack.enter_context(made)
        if callable(close := getattr(made, "close", None)):
            self._stack.callback(close)
        return made

    def close(self) -> None:
        """Close everything."""
        self._stack.close()
