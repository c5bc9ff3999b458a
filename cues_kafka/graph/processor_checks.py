"""Checks of a processor's settings, each by itself and against the others."""

from __future__ import annotations

from typing import get_args

from cues_kafka.errors import GraphError
from cues_kafka.graph.batch_form import check_batch
from cues_kafka.graph.bound import check_place
from cues_kafka.graph.calls import check_calls
from cues_kafka.graph.declare import CodecSpec, CommitPolicy, Retry, Store, Table
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.error_message import check_errors
from cues_kafka.graph.filters import check_filter
from cues_kafka.graph.handler import Handler, StateHandler
from cues_kafka.graph.names import check_name, check_topic, quoted
from cues_kafka.graph.processor_fields import ProcessorFields, Strategy
from cues_kafka.graph.publish import check_published
from cues_kafka.graph.timers import Timers
from cues_kafka.graph.topic import check_choice, check_count


def check_settings(processor: ProcessorFields, label: str) -> None:
    """
    Check the settings of a processor.

    Raises:
        GraphError: one that is wrong by itself, or that another one excludes.
    """
    check_errors(processor.errors, f"{label}, errors=")
    check_filter(processor.filter, label)
    if processor.strategy is not None:
        check_choice(processor.strategy, get_args(Strategy), f"{label}: strategy")
    _check_start(processor, label)
    _check_held(processor, label)
    _check_timers(processor, label)
    _check_targets(processor, label)
    check_batch(processor.batch, label)
    check_count(processor.concurrency, f"{label}: concurrency")
    if processor.state and processor.concurrency > 1:
        raise GraphError(
            f"{label}: state= with concurrency={processor.concurrency}: steps that run side by side would see each "
            "other's changes. Drop one of them."
        )
    if processor.batch and any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: a Handler with batch={processor.batch!r}: where one message fails, its steps are called again "
            "one by one. Have the function take one message."
        )
    _check_imperative(processor, label)
    _check_trail(processor, label)
    _check_policies(processor, label)
    if processor.quarantine_after is not None:
        check_count(processor.quarantine_after, f"{label}: quarantine_after")
    _check_former_name(processor, label)
    if processor.batch and processor.may_miss_bindings:
        raise GraphError(
            f"{label}: batch={processor.batch!r} gets as many messages of each input, but here a step may miss "
            "bindings. Drop batch=, or use inputs= without filter=."
        )


def _check_trail(processor: ProcessorFields, label: str) -> None:
    """Refuse a trail where its records could not be committed with their steps, or not be told from others."""
    if processor.trail is None:
        return
    if processor.strategy not in (None, "exactly-once"):
        raise GraphError(
            f"{label}: trail= with strategy={processor.strategy!r}: its records would not be committed with their "
            "steps. Leave strategy= out."
        )
    if processor.columnar:
        raise GraphError(
            f"{label}: trail= with batch='arrow': both may write records of a call and of no step, which `verify` "
            "could not tell apart. Write batch=True, or drop trail=."
        )
    if any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: trail= with a Handler: both write records of a batch and of no step, which `verify` could not "
            "tell apart. Use Store."
        )


def _check_former_name(processor: ProcessorFields, label: str) -> None:
    if processor.renamed_from is None:
        return
    if check_name(processor.renamed_from, f"{label}: renamed_from") == processor.name:
        raise GraphError(
            f"{label}: renamed_from={processor.renamed_from!r} is its name now. Write its former name, or leave it out."
        )


def _check_held(processor: ProcessorFields, label: str) -> None:
    for name, store in processor.state.items():
        check_name(name, f"{label}, state=")
        if not isinstance(store, Store):
            raise GraphError(f"{label}: state= gives {name!r} {store!r}. Write state={{{name!r}: {_kept(store)}}}.")
    for name, table in processor.tables.items():
        check_name(name, f"{label}, tables=")
        if not isinstance(table, Table):
            raise GraphError(f'{label}: tables= gives {name!r} {table!r}. Write tables={{{name!r}: Table("topic")}}.')
        check_topic(table.topic, f"{label}, tables=")


def _kept(given: object) -> str:
    """How to declare as state what was given in place of a store."""
    if isinstance(given, CodecSpec):
        return f"Store({type(given).__name__}(...))"
    made = given if isinstance(given, type) else type(given)
    return f"Handler({made.__name__})" if issubclass(made, StateHandler) else "Store()"


def _check_targets(processor: ProcessorFields, label: str) -> None:
    for name, one in processor.targets.items():
        check_name(name, f"{label}, effects=")
        if not isinstance(one, Effect):
            raise GraphError(
                f"{label}: effects= gives {name!r} something that is not a target. Write "
                f'effects={{{name!r}: Sql("...")}}.'
            )
    check_calls(label, processor.targets, batch=processor.batch)
    check_published(
        label,
        processor.targets,
        together={
            "state=": bool(processor.state),
            f"batch={processor.batch!r}": bool(processor.batch),
            "concurrency=": processor.concurrency > 1,
            "a database or a store": any(one.transactional for one in processor.targets.values()),
            f"strategy={processor.strategy!r}": processor.strategy not in (None, "exactly-once"),
        },
    )
    found = [name for name, one in processor.targets.items() if one.transactional]
    if len({processor.targets[name].home for name in found}) > 1:
        raise GraphError(
            f"{label}: effects= has several databases or stores, {quoted(found)}: no transaction spans two of them. "
            "Write to one, and have a second processor write to the other."
        )
    _check_placed(processor, label)
    if found and processor.concurrency > 1:
        raise GraphError(
            f"{label}: effects= with a database or a store and concurrency={processor.concurrency}: steps that run "
            "side by side would share one transaction. Drop concurrency=, and add partitions."
        )
    if found and any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: a Handler beside a database or a store: where that is ahead after a death, its outcome is "
            "published without a call, and the handler would not see it. Use Store."
        )
    if found and processor.strategy not in (None, "exactly-once"):
        raise GraphError(f"{label}: a database or a store with strategy={processor.strategy!r}. Leave strategy= out.")


def _check_placed(processor: ProcessorFields, label: str) -> None:
    """Refuse an upsert where the place of the messages says nothing about their order."""
    name = next((name for name, one in processor.targets.items() if one.placed), None)
    if name is None:
        return
    if processor.input_shape != "single":
        raise GraphError(
            f"{label}: effects= has the upsert {name!r}, whose rows tell older from newer by the offset of their "
            f"message, and a step of {processor.inputs_word}= has several inputs. Have another processor read the "
            "inputs, and write the topic that this one reads."
        )
    if processor.timers is not None:
        raise GraphError(
            f"{label}: effects= has the upsert {name!r}, and state= has Timers. A timer has no offset that tells older "
            "from newer. Have the function of the timer send a message, and upsert in the processor that reads it."
        )


def _check_timers(processor: ProcessorFields, label: str) -> None:
    found = [name for name, store in processor.state.items() if isinstance(store, Timers)]
    if len(found) > 1:
        raise GraphError(f"{label}: state= has several Timers, {quoted(found)}. Keep one, and tell by the timer's key.")
    if found and processor.batch:
        raise GraphError(
            f"{label}: Timers with batch={processor.batch!r}: a timer must fire before the message behind it, and a "
            "list has both. Have the function take one message."
        )
    if found and any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(f"{label}: Timers with a Handler: only stores are taken back where a timer fails. Use Store.")


def _check_imperative(processor: ProcessorFields, label: str) -> None:
    """Refuse what does not go with moves and appends that belong to one step (L1)."""
    if not processor.imperative:
        return
    which = "tailers" if processor.tailers else "appenders"
    if processor.batch:
        raise GraphError(
            f"{label}: {which}= with batch={processor.batch!r}: which step of a call has moved or appended is not "
            "known. Have the function take one message: drop batch=."
        )
    if processor.concurrency > 1:
        raise GraphError(
            f"{label}: {which}= with concurrency={processor.concurrency}: steps that run side by side would share one "
            "place. Drop concurrency=, and add partitions."
        )
    if any(isinstance(store, Handler) for store in processor.state.values()):
        raise GraphError(
            f"{label}: {which}= with a Handler: where a step fails, those before it are called again for the handler, "
            "and would move and append again. Use Store."
        )


def _check_start(processor: ProcessorFields, label: str) -> None:
    if not isinstance(processor.start, str) and processor.input_shape != "single":
        raise GraphError(
            f"{label}: start={processor.start!r} is for a processor with one input. Write start='earliest' or "
            "'latest'; to begin elsewhere, create the topics with `cues-kafka plan MODULE:GRAPH --apply`, then "
            "use `cues-kafka reset MODULE:GRAPH PROCESSOR --to FILE`."
        )
    check_place(processor.start, label, ("earliest", "latest"))


def _check_policies(processor: ProcessorFields, label: str) -> None:
    if not isinstance(processor.retry, Retry | None):
        raise GraphError(f"{label}: retry={processor.retry!r}. Write retry=Retry(on=(OSError,)).")
    if not isinstance(processor.commit, CommitPolicy | None):
        raise GraphError(f"{label}: commit={processor.commit!r}. Write commit=CommitPolicy(max_messages=1_000).")


def check_topics_once(processor: ProcessorFields, label: str) -> None:
    """Refuse a topic that is read, or written, under two bindings."""
    for places in (
        {
            processor.inputs_word: processor.inputs,
            "tables": [(name, table.topic) for name, table in processor.tables.items()],
        },
        {"outputs": processor.outputs, "appenders": processor.appenders.items()},
    ):
        seen: dict[str, str] = {}
        for place, binding, topic in [(place, *pair) for place, pairs in places.items() for pair in pairs]:
            if topic in seen:
                raise GraphError(
                    f"{label}: topic {topic!r} is under two bindings, {seen[topic]} and {place}={binding!r}. "
                    "Keep one of them; a second reader of the topic is a processor of its own."
                )
            seen[topic] = f"{place}={binding!r}"
