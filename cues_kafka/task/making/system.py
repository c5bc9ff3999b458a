"""The graph's `system=`: opened once in each process, and closed in reverse order when the process stops."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

from cues_kafka.errors import ConfigError, FactoryError, GraphError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.system")

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 2.0


class System:
    """
    Holds what the factories of `system=` made.

    Attributes:
        values: what they made, by name.
    """

    def __init__(self, factories: Mapping[str, Callable[[], Any]], *, patience_s: float = 0.0) -> None:
        """
        Call all factories.

        A factory that raises is called again after a pause that doubles: what it connects to may start a moment later
        than this process.

        Args:
            factories: the factories by name.
            patience_s: how long factories that raise are called again, in total.

        Raises:
            FactoryError: a factory still raises. Its last exception is the cause, and what was opened is closed.
            ConfigError, GraphError: a factory needs arguments, or raises this itself.
        """
        self._stack = ExitStack()
        self.values: dict[str, Any] = {}
        deadline_s = time.monotonic() + patience_s
        try:
            for name, factory in factories.items():
                _check_callable(name, factory)
                self.values[name] = self._opened(name, factory, deadline_s)
        except BaseException:
            self._stack.close()
            raise

    def _opened(self, name: str, factory: Callable[[], Any], deadline_s: float) -> Any:
        began_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                return self._open(factory())
            except (ConfigError, GraphError):
                raise
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                if time.monotonic() + pause_s > deadline_s:
                    log.error("system not opened", name=name, error=said)
                    raise FactoryError(
                        f"system={{{name!r}: ...}}: the factory still raised {said} after "
                        f"{time.monotonic() - began_s:.1f} s. Start or repair what it connects to, then start again"
                    ) from error
                log.warning("system not opened", name=name, error=said, again_in_s=pause_s)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _open(self, made: Any) -> Any:
        if isinstance(made, AbstractContextManager):
            return self._stack.enter_context(made)
        if callable(close := getattr(made, "close", None)):
            self._stack.callback(close)
        return made

    def close(self) -> None:
        """Close everything."""
        self._stack.close()


def _check_callable(name: str, factory: Callable[[], Any]) -> None:
    """Refuse a factory that needs arguments at once: a later try would not change that."""
    try:
        inspect.signature(factory).bind()
    except ValueError:  # written in C, with a signature that Python does not know
        return
    except TypeError as error:
        raise ConfigError(
            f"system={{{name!r}: ...}}: the factory cannot be called without arguments ({error}). Give one that can: "
            f"system={{{name!r}: lambda: ...}}"
        ) from error
