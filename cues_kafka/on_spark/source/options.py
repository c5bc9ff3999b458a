"""Options of `format("cues")`: the names and JSON forms of Spark's Kafka source, parsed and checked as a whole.

Spark passes options as text, with names in any case. An option that is not known, that contradicts another one, or that
would be ignored is an error, because a query must not read something else than its author believes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cues_kafka.brokers.options import Kafka
from cues_kafka.errors import ConfigError
from cues_kafka.on_spark.source import typed
from cues_kafka.on_spark.source.client_options import kafka_of, known_names, nearest
from cues_kafka.on_spark.source.values import Values
from cues_kafka.ports.log import TopicPartition

LATEST: Final = -1
"""In JSON offsets: the end of the partition."""

EARLIEST: Final = -2
"""In JSON offsets: the start of the partition's log."""

_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")

_STREAM_ONLY: Final = {
    "maxOffsetsPerTrigger": "a batch has no trigger; endingOffsets bounds it",
    "name": "it pins where a stream begins; a batch begins where startingOffsets says",
}
_BATCH_ONLY: Final = dict.fromkeys(
    ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    "a stream has no end; for what is there now use trigger(availableNow=True)",
)
_BOTH: Final = (
    *_SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "allowPlaintext",
    "allowUnverifiedTls",
    *typed.OPTIONS,
    *typed.REGISTRY_OPTIONS,
)

_ONE_TASK = (
    "each partition of a topic is read by one Spark task, so that its order is kept and its range is one. Give the "
    "topic more partitions, or use repartition() behind the source"
)
_COMPOSITE = "Spark offers sources in Python no lower limit of a batch; use a longer trigger"
_RETRIES = "librdkafka decides when to ask again; kafka.default.api.timeout.ms bounds how long"

_REFUSED: Final = {
    "minPartitions": _ONE_TASK,
    "maxRecordsPerPartition": _ONE_TASK,
    "minOffsetsPerTrigger": _COMPOSITE,
    "maxTriggerDelay": _COMPOSITE,
    "groupIdPrefix": 'the source is no member of a group; to pin where a stream begins, give it option("name", N)',
    "kafkaConsumer.pollTimeoutMs": _RETRIES,
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "topic": "it is an option of sinks; to read give subscribe",
    "path": "topics are named by subscribe; call load() without a path",
}

_CANONICAL: Final = {name.lower(): name for name in (*_BOTH, *_STREAM_ONLY, *_BATCH_ONLY, *_REFUSED)}

_OFFSETS_FORM = 'JSON like {"orders": {"0": 23, "1": -2}}, where -2 is the earliest and -1 the latest'
_TIMES_FORM = 'JSON like {"orders": {"0": 1609459200000}}, milliseconds since 1970'
_ASSIGN_FORM = 'JSON like {"orders": [0, 1]}'
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")

PIN_ADVICE: Final = (
    'give the stream option("name", N) with a name of its own, and its start is kept as committed offsets of the group '
    'N; or option("startingOffsets", "earliest"). Spark asks a source twice where to begin when a query dies in its '
    "first batch, and what came in between would be lost"
)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a read covers: names of topics, a regular expression for whole names, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern:
            return f"subscribePattern={self.pattern}"
        if self.topics:
            return f"subscribe={','.join(self.topics)}"
        return f"assign={','.join(f'{topic}/{partition}' for topic, partition in self.places)}"


@dataclass(frozen=True, slots=True)
class Bound:
    """
    Where a read begins or ends; one of the four values is set.

    Attributes:
        option: name of the option, for messages.
        edge: `EARLIEST` or `LATEST` for all partitions.
        offsets: by partition, `EARLIEST` and `LATEST` among them.
        time_ms: the first message at or past this time, in all partitions.
        times_ms: the same by partition.
        or_latest: if no message is that young, take the end; otherwise that is an error.
    """

    option: str
    edge: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    time_ms: int | None = None
    times_ms: Mapping[TopicPartition, int] | None = None
    or_latest: bool = False

    def has(self, edge: int) -> bool:
        """Whether all partitions, or one of them, are at that edge."""
        return self.edge == edge or edge in (self.offsets or {}).values()

    @property
    def moves(self) -> bool:
        """Whether a later question may get a later answer although the log still has everything."""
        return self.has(LATEST) or self.or_latest


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """
    The options of one read, parsed.

    Attributes:
        start: where a query without a checkpoint begins.
        end: where a batch ends; the latest for streams.
        limit: offsets in one micro-batch, over all partitions; None: no limit.
        fail_on_loss: whether messages that are gone from the log are an error.
        name: pins the start of a stream; also the name of clients.
    """

    options: Kafka = field(repr=False)
    subscription: Subscription
    start: Bound
    end: Bound
    limit: int | None = None
    headers: bool = False
    fail_on_loss: bool = True
    name: str | None = None


def parse(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """
    Parse options as Spark passes them.

    Raises:
        ConfigError: an option is missing, unknown, refused, or contradicts another one; the text has the remedy.
    """
    headers = wants_headers(given)
    own, kafka = _sorted(given)
    _refuse(own, _BATCH_ONLY if streaming else _STREAM_ONLY)
    settings = SourceOptions(
        options=_cluster(own, kafka),
        subscription=_subscription(own),
        start=_bound(own, "starting", LATEST if streaming else EARLIEST),
        end=_bound(own, "ending", LATEST),
        limit=_number(own, "maxOffsetsPerTrigger", least=1),
        headers=headers,
        fail_on_loss=_flag(own, "failOnDataLoss", default=True),
        name=_name(own),
    )
    _check_bounds(settings, streaming=streaming)
    return settings


def values_of(given: Mapping[str, str], graphs: typed.Graphs) -> Values | None:
    """
    Return what makes a column with types of the values; None: they are bytes.

    Raises:
        ConfigError: the options say so in a way that cannot be followed, see `typed.values_of`.
    """
    own, kafka = _sorted(given)
    about = {name: own[name] for name in (*typed.OPTIONS, *typed.REGISTRY_OPTIONS) if name in own}
    if not about:
        return None
    subscription = _subscription(own)
    topics = subscription.topics or tuple(dict.fromkeys(place.topic for place in subscription.places))
    return typed.values_of(about, topics, _cluster(own, kafka), graphs)


def _cluster(own: Mapping[str, str], kafka: Mapping[str, str]) -> Kafka:
    return kafka_of(
        kafka,
        allow_plaintext=_flag(own, "allowPlaintext"),
        allow_unverified_tls=_flag(own, "allowUnverifiedTls"),
    )


def wants_headers(given: Mapping[str, str]) -> bool:
    """
    Return whether the column `headers` is asked for. Spark asks for the columns before it says whether it will stream,
    so `load()` raises what is wrong in either case.

    Raises:
        ConfigError: neither true nor false, or another option is unknown or refused.
    """
    own, _ = _sorted(given)
    _refuse(own, _REFUSED)
    return _flag(own, "includeHeaders")


def _sorted(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Our options by their documented names, and those of `kafka.` without the prefix."""
    own: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in _CANONICAL:
            own[_CANONICAL[lower]] = value
        elif lower.startswith("kafka."):
            kafka[lower.removeprefix("kafka.")] = value
        else:
            known = [*_BOTH, *_STREAM_ONLY, *_BATCH_ONLY, *(f"kafka.{one}" for one in known_names())]
            raise ConfigError(f"option {name!r} is not known{nearest(name, known)}")
    return own, kafka


def _refuse(own: Mapping[str, str], reasons: Mapping[str, str]) -> None:
    for name in own:
        if name in reasons:
            raise ConfigError(f"option {name} is refused: {reasons[name]}")


def _subscription(own: Mapping[str, str]) -> Subscription:
    chosen = [name for name in _SUBSCRIPTIONS if name in own]
    if len(chosen) != 1:
        names = " and ".join(chosen) or "none"
        raise ConfigError(f"give exactly one of subscribe, subscribePattern and assign; there is {names}")
    text = own[chosen[0]].strip()
    if not text:
        raise ConfigError(f"option {chosen[0]} is empty")
    match chosen[0]:
        case "subscribe":
            topics = dict.fromkeys(topic.strip() for topic in text.split(","))
            return Subscription(topics=tuple(sorted(topic for topic in topics if topic)))
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise ConfigError(f"subscribePattern={text} is not a regular expression of Python: {error}") from error
            return Subscription(pattern=text)
        case _:
            return Subscription(places=_places(text))


def _places(text: str) -> tuple[TopicPartition, ...]:
    found = _json("assign", text, _ASSIGN_FORM)
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(p) for p in partitions):
            raise ConfigError(f"option assign: {topic!r} has no list of partitions; write {_ASSIGN_FORM}")
    return tuple(sorted({TopicPartition(topic, p) for topic, partitions in found.items() for p in partitions}))


def _bound(own: Mapping[str, str], side: str, default: int) -> Bound:
    """Precedence is Spark's: one time for all, times by partition, offsets."""
    either = f"{side}Timestamp"
    or_latest = side == "ending" or _strategy(own) == "latest"
    if either in own:
        return Bound(either, time_ms=_number(own, either, least=0), or_latest=or_latest)
    by_time = f"{side}OffsetsByTimestamp"
    if by_time in own:
        times = _numbers(by_time, own[by_time], _TIMES_FORM, least=0)
        return Bound(by_time, times_ms=times, or_latest=or_latest)
    option = f"{side}Offsets"
    text = own.get(option, "").strip()
    edges = {"": default, "earliest": EARLIEST, "latest": LATEST}
    if text.lower() in edges:
        return Bound(option, edge=edges[text.lower()])
    form = f'"earliest", "latest" or {_OFFSETS_FORM}'
    return Bound(option, offsets=_numbers(option, text, form, least=EARLIEST))


def _strategy(own: Mapping[str, str]) -> str:
    option = "startingOffsetsByTimestampStrategy"
    strategy = own.get(option, "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(f"{option}={own[option]} is not known; it is error or latest")
    return strategy


def _check_bounds(settings: SourceOptions, *, streaming: bool) -> None:
    start, end = settings.start, settings.end
    if streaming and start.moves and settings.name is None:
        given = "the default of streams" if start.edge == LATEST else start.option
        raise ConfigError(f"a stream cannot begin at the latest offsets ({given}) by itself: {PIN_ADVICE}")
    if not streaming and start.has(LATEST):
        raise ConfigError("a batch cannot begin at the latest offsets (startingOffsets): it would always be empty")
    if end.has(EARLIEST):
        raise ConfigError("a batch cannot end at the earliest offsets (endingOffsets): it would always be empty")


def _name(own: Mapping[str, str]) -> str | None:
    name = own.get("name")
    if name is not None and not _NAME.fullmatch(name):
        raise ConfigError(f"name={name!r}: a name is 1 to 200 letters, digits, dots, dashes and underscores")
    return name


def _flag(own: Mapping[str, str], option: str, *, default: bool = False) -> bool:
    text = own.get(option, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {option}={own[option]} is neither true nor false")
    return text == "true"


def _number(own: Mapping[str, str], option: str, *, least: int) -> int | None:
    if option not in own:
        return None
    text = own[option]
    try:
        number = int(text.strip())
    except ValueError:
        raise ConfigError(f"option {option}={text} is not a whole number") from None
    if number < least:
        raise ConfigError(f"option {option}={text} is less than {least}")
    return number


def _numbers(option: str, text: str, form: str, *, least: int) -> dict[TopicPartition, int]:
    found = {}
    for topic, numbers in _json(option, text, form).items():
        if not isinstance(numbers, dict) or not numbers:
            raise ConfigError(f"option {option}: {topic!r} has no partitions; write {form}")
        for partition, number in numbers.items():
            if not partition.isdecimal() or not _is_count(number, least):
                raise ConfigError(f"option {option}: {{{partition!r}: {number!r}}} of {topic!r}; write {form}")
            found[TopicPartition(topic, int(partition))] = number
    return dict(sorted(found.items()))


def _json(option: str, text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"option {option}={text} cannot be read; write {form}")
    return found


def _is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
