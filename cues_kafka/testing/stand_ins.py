"""What stands in for other things in a `Tester`: for targets of functions, and for threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

from cues_kafka.errors import ConfigError
from cues_kafka.graph.calls import Given, Http
from cues_kafka.graph.effects import Effect as Declared
from cues_kafka.graph.processor import Processor

_Result = TypeVar("_Result")

_STANDS_IN: Final = {
    "database": "Declare it with env=, and set the variable to sqlite:///path/to/file",
    "store": "Declare it with env=, and set the variable to file:///path/to/directory",
}


class Inline(Executor):
    """Runs what is submitted at once, on the caller's thread."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        future: Future[_Result] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def stood_in(processor: Processor, fakes: Mapping[str, Any]) -> Processor:
    """
    A processor with what stands in for its effects.

    Raises:
        ConfigError: a database cannot be stood in for by an object.
    """
    found: dict[str, Declared] = {}
    for name, one in processor.targets.items():
        if name not in fakes:
            continue
        fake = fakes[name]
        if one.transactional:
            raise ConfigError(
                f"Tester(effects={{{name!r}: ...}}): nothing stands in for the transactions of a {one.holder}. "
                f"{_STANDS_IN.get(one.holder, 'Give it an address of its own for tests')}"
            )
        if isinstance(one, Http) and callable(getattr(fake, "handle_request", None)):
            found[name] = one.over(lambda fake=fake: fake)  # type: ignore[misc]
        else:
            found[name] = Given(fake)
    return processor.replace(effects={**processor.targets, **found}) if found else processor
