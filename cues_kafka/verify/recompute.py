"""Calls a processor's function again for all messages that a task has delivered, with empty stores."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from cues_kafka.core.records import Totals
from cues_kafka.core.spec import Spec
from cues_kafka.errors import CuesError
from cues_kafka.graph.handler import Handler
from cues_kafka.graph.processor import Processor
from cues_kafka.state.stores import Stores
from cues_kafka.task.calling.batch import Batch
from cues_kafka.task.calling.caller import Caller
from cues_kafka.task.parts.stores import stores_of
from cues_kafka.words import count

CHUNK: Final = 1_000
"""Steps whose outputs are in memory at once."""


ALL: Final = 1 << 62
"""Timers that may fire between these steps: all that are due."""


class NotRecomputed(Exception):
    """A store cannot be recomputed; the text is the reason, as a clause."""


def obstacle(processor: Processor, pure: Container[str]) -> str | None:
    """
    Why a processor's function cannot be called again; None: it can.

    Args:
        processor: the processor.
        pure: names of processors that change nothing but their stores, as their users say.
    """
    name = processor.name
    asking = f"if a second call does no harm and gives the same, add --pure {name}"
    if handlers := [name for name, store in processor.state.items() if isinstance(store, Handler)]:
        return f"the entries of its state handlers ({', '.join(handlers)}) depend on where its batches ended"
    if processor.timers and processor.timers[1].by == "clock":
        return "its timers go by the clock, and when they fired among the messages is not kept"
    if processor.tables:
        return f"it looks things up in {', '.join(map(repr, processor.tables))}, which may have changed since"
    timed = processor.timer_call.context if processor.timer_call else {}
    if "system" in (*processor.call.context.values(), *timed.values()):
        return "its function takes values of system=, which verify does not open"
    if processor.tailers:
        return f"it reads {', '.join(map(repr, processor.tailers))} by itself, and what it saw there is not kept"
    if processor.input_shape == "alts":
        return "it takes its inputs in turns, and the order is not kept"
    if processor.batch:
        return "its function takes lists, and which messages came in one call is not kept"
    if processor.target:
        return "it has a database, and its function may read there"
    if processor.calls:
        return f"it calls {', '.join(processor.calls)}, and verify must not"
    if processor.has_effects and name not in pure:
        kind = "effects=True" if processor.effects else "no outputs, so it counts as a sink"
        return f"it has {kind}: a second call might repeat its effects; {asking}"
    if processor.retry and name not in pure:
        return f"it has retry=, so its function depends on something outside; {asking}"
    return None


def recompute(
    caller: Caller,
    spec: Spec,
    steps: Iterable[Any],
    *,
    topic_ids: Mapping[str, bytes],
    failed: Callable[[Any], bool],
    totals: Totals,
) -> Stores:
    """
    Call the function for these steps, and keep its changes.

    Args:
        caller: of the processor.
        spec: of the task.
        steps: see `pairing.Step`; all of the task, in order.
        topic_ids: by input binding.
        failed: whether a step became an error message. It has changed nothing, so it is not called.
        totals: the task's own, which must come out again.

    Raises:
        NotRecomputed: the function did not do the same, or not for the same steps.
    """
    if totals.replays:
        raise NotRecomputed(
            f"{count(totals.replays, 'error message')} {'was' if totals.replays == 1 else 'were'} replayed or dropped, "
            "and what its entries were then is not kept"
        )
    context = caller.context_of(spec)
    stores = stores_of(context)
    found = Totals()
    rest = iter(steps)
    while chunk := list(islice(rest, CHUNK)):
        called = [step for step in chunk if not failed(step)]
        found = found.plus(Totals(deliveries=len(chunk) - len(called), errors=len(chunk) - len(called)))
        while called:
            batch = Batch(spec, 0, topic_ids, context, most=ALL)
            stores.begin_batch(0)
            ended = _call(caller, called, batch)
            stores.before_commit(0, batch.records)
            stores.after_commit(0)
            found = found.plus(batch.totals)
            called = called[ended:]
    _compare(found, totals)
    return stores


def _call(caller: Caller, steps: Sequence[Any], batch: Batch) -> int:
    try:
        ended = caller.run(steps, batch)
    except CuesError as error:
        raise NotRecomputed(
            f"at {caller.place(steps, min(batch.begun_by_messages, len(steps) - 1))}: {error}"
        ) from error
    if batch.halt is not None:
        raise NotRecomputed(
            f"its function ended otherwise at {caller.place(steps, min(ended, len(steps) - 1))}: {batch.halt.text}"
        )
    return ended


def _compare(found: Totals, said: Totals) -> None:
    steps, expected = found.deliveries - found.timers, said.deliveries - said.timers
    if steps != expected:
        raise NotRecomputed(f"its inputs hold {steps} steps below its positions, and its totals say {expected}")
    names = ("outputs", "errors", "nils", "timers")
    counts = [(name, getattr(found, name), getattr(said, name)) for name in names]
    if differing := [f"{now} {name} instead of {then}" for name, now, then in counts if now != then]:
        raise NotRecomputed(
            f"called again, its function gave {', '.join(differing)}: it depends on more than its messages, or was "
            "changed since"
        )
