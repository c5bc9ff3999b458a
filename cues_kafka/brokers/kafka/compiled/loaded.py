"""Decides whether the compiled module is used, and says why not."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

import confluent_kafka

from cues_kafka.errors import ConfigError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.broker")

CHOICE: Final = "CUES_KAFKA_COMPILED"
"""Environment variable: ``0`` never uses the module, ``1`` refuses to work without it."""

FITS: Final = ("2.16.",)
"""Versions of confluent-kafka whose Producer and Consumer begin with their client of librdkafka."""


class Acknowledged(Protocol):
    """Counts acknowledgements of records that `Module.produce` has enqueued for one producer; for any thread."""

    def read(self) -> tuple[int, int, int, str, int]:
        """Delivered, failed, and the code of the first that failed (0: none) with its topic and partition."""
        ...

    def reset(self) -> None:
        """Count from zero."""
        ...


class Fetcher(Protocol):
    """Takes what a consumer has fetched; for one thread."""

    def forward(self, topic: str, partition: int) -> None:
        """Have what is fetched of a partition come here. Until something has come, it may have to be said again."""
        ...

    def take(self, timeout_s: float, most: int) -> list[Any]:
        """Wait for one message or event, then take what is there, up to a number: `ports.log.WireMessage`s."""
        ...

    def close(self) -> None:
        """Before the consumer is closed."""
        ...


class Module(Protocol):
    """What the module has.

    Attributes:
        QUEUE_FULL: a code of `produce`: the next record has no room.
        UNUSUAL: a code of `produce`: the next record has something that only the Python client can take.
    """

    QUEUE_FULL: int
    UNUSUAL: int
    __file__: str

    def bind(self, path: str, types: tuple[type, ...]) -> None: ...
    def name_of(self, client: Any) -> str: ...
    def tally_of(self, producer: Any) -> Acknowledged | None: ...
    def fetcher_of(self, consumer: Any, error_type: Any) -> Fetcher: ...
    def message(self, *given: Any) -> Any:
        """
        A message as `Fetcher.take` gives it, for programs that have no broker.

        Its topic, partition, offset, key, value, headers, and timestamp (ms).
        """
        ...

    def produce(self, producer: Any, start: int, columns: tuple[list[Any], ...], header: str) -> tuple[int, int]:
        """
        Enqueue the records of these columns from `start` on.

        Columns are topics, partitions, keys, values, headers and timestamps (ms). Headers of a record are None, a list
        of pairs, or the bytes of one header that is named `header`.

        Returns:
            How many were enqueued, and why no more: 0, `QUEUE_FULL`, `UNUSUAL`, or a code of the client.
        """
        ...


class Loaded(NamedTuple):
    """The module, or why it is not used."""

    module: Module | None
    why_not: str


@functools.cache
def loaded() -> Loaded:
    """
    The compiled module, once for a process.

    Raises:
        ConfigError: it cannot be used, and the environment asks for it.
    """
    choice = os.environ.get(CHOICE, "")
    found = Loaded(None, f"{CHOICE}=0 turns it off") if choice == "0" else _load()
    if choice == "1" and found.module is None:
        raise ConfigError(
            f"{CHOICE}=1 asks for the compiled module, but {found.why_not}. Install the package where there is a C "
            f"compiler and Python's headers, or unset {CHOICE}: without the module, the same is done in Python"
        )
    if choice != "0" and found.module is None:
        log.info("compiled module not used", why=found.why_not)
    return found


def _load() -> Loaded:
    version = str(confluent_kafka.__version__)
    if not version.startswith(FITS):
        return Loaded(None, f"confluent-kafka is {version}, and it was tried with {' and '.join(FITS)}* alone")
    try:
        import _cues_kafka  # type: ignore[import-not-found]  # noqa: PLC0415 - not everywhere
    except ImportError as problem:
        return Loaded(None, f"it is not installed ({problem})")
    path = _library()
    if path is None:
        return Loaded(None, "confluent-kafka does not use the librdkafka of its own wheel")
    module = cast(Module, _cues_kafka)
    try:
        module.bind(path, (confluent_kafka.cimpl.Producer, confluent_kafka.cimpl.Consumer))
    except ImportError as problem:
        return Loaded(None, str(problem))
    return Loaded(module, "")


def _library() -> str | None:
    """
    The librdkafka that this process has loaded, if it came with the wheel; Linux alone says it.

    One of the system may lack plugins, and then it would refuse each producer.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"\s(/.*/confluent_kafka\.libs/librdkafka[^/\s]*\.so[^/\s]*)$", maps, re.MULTILINE)
    return found[1] if found else None
