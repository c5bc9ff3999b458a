"""The state machine of one task. Everything that decides about delivery lives in `states` and in `recover`.

`handle(task, event)` returns the task as it is afterwards and the one effect that must be done next. It is pure: tasks
are frozen values, and time comes with events. An event that `TRANSITIONS` does not list for the task's state raises
and changes nothing. The interpreter of the shell does the effects and reports events. When an effect fails, it reports
`Failed`, and the task returns to R1.

There are two ways to deliver. Where a snapshot is due (`Task.snapshot_due`), the shell reports `Polled` before it
looks at a message, and calls user code when the task says `Call`. Elsewhere the shell may call user code while the
last commit is under way (P7) and reports `Called` when the task is ready again. If that commit failed, the shell
throws away what it called meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from cues_kafka.core import events as on
from cues_kafka.core.events import IllegalEvent
from cues_kafka.core.states import delivery, ending, recovery, transaction
from cues_kafka.core.states.transitions import Next
from cues_kafka.core.task import Doing, Task


def handle(task: Task, event: on.Event) -> Next:
    """
    Take one step of the machine.

    Raises:
        IllegalEvent: `TRANSITIONS` does not list this event for the task's state. The task does not change.
    """
    try:
        handler, states = TRANSITIONS[task.state][type(event)]
    except KeyError:
        raise IllegalEvent(f"{task.spec.name} is {task.state.value}: {type(event).__name__} cannot happen") from None
    after, effect = handler(task, event)
    if after.state not in states:
        raise IllegalEvent(f"{task.spec.name}: {task.state.value} -> {after.state.value} is not in the table")
    return after, effect


Handler: TypeAlias = Callable[[Task, Any], Next]
Transitions: TypeAlias = dict[type, tuple[Handler, frozenset[Doing]]]


def _to(*names: str) -> frozenset[Doing]:
    return frozenset(Doing[name] for name in names)


_BACK = _to("DISCARDING", "STOPPED")
_MAY_END: Transitions = {on.Lost: (ending.abandoned, _to("RELEASED")), on.Revoked: (ending.abandoned, _to("RELEASED"))}
_MAY_FAIL: Transitions = {on.Failed: (ending.failed, _BACK), **_MAY_END}
_RECOVERING: Transitions = {**_MAY_FAIL, on.Revoked: (ending.interrupted, _to("DISCARDING", "RELEASED"))}
_MAY_LEAVE: Transitions = {**_RECOVERING, on.Failed: (ending.failed, _BACK | _to("RELEASED"))}
"""The events of a state that a leaving task passes."""

_IN_TRANSACTION: Transitions = {**_MAY_FAIL, on.Failed: _MAY_LEAVE[on.Failed]}

_DECIDED = _to("FETCHING_SIBLING", "ASSIGNING", "DISCARDING", "STOPPED", "BEGINNING")

TRANSITIONS: dict[Doing, Transitions] = {
    Doing.NEW: {on.Assigned: (recovery.assigned, _to("INITIALISING")), **_MAY_END},
    Doing.INITIALISING: {on.Initialised: (recovery.initialised, _to("FETCHING_OFFSETS")), **_MAY_LEAVE},
    Doing.FETCHING_OFFSETS: {on.OffsetsFetched: (recovery.offsets_fetched, _to("FETCHING_WATERMARK")), **_MAY_LEAVE},
    Doing.FETCHING_WATERMARK: {on.WatermarkFetched: (recovery.watermark_fetched, _to("READING_NEWEST")), **_MAY_LEAVE},
    Doing.READING_NEWEST: {
        on.NewestRead: (recovery.newest_read, _to("FETCHING_INPUTS", "STOPPED", "RELEASED")),
        **_MAY_LEAVE,
    },
    Doing.FETCHING_INPUTS: {
        on.InputsFetched: (
            recovery.inputs_fetched,
            _to("ASKING_TARGET", "FETCHING_PARTS", "READY", "RELEASED") | _DECIDED,
        ),
        **_MAY_LEAVE,
    },
    Doing.ASKING_TARGET: {on.TargetAsked: (recovery.target_asked, _DECIDED), **_RECOVERING},
    Doing.FETCHING_SIBLING: {on.SiblingRead: (recovery.sibling_read, _to("BEGINNING", "STOPPED")), **_MAY_FAIL},
    Doing.FETCHING_PARTS: {on.PartsRead: (recovery.parts_read, _to("BEGINNING", "STOPPED")), **_MAY_FAIL},
    Doing.ASSIGNING: {on.Done: (recovery.reader_assigned, _to("READY")), **_RECOVERING},
    Doing.READY: {
        on.Polled: (delivery.polled, _to("BEGINNING", "CALLING")),
        on.Called: (delivery.called, _to("BEGINNING", "READY", "STOPPED")),
        on.Idle: (delivery.idle, _to("BEGINNING")),
        **_MAY_FAIL,
        on.Revoked: (ending.revoked, _to("BEGINNING", "RELEASED")),
    },
    Doing.CALLING: {
        on.Called: (delivery.called, _to("BEGINNING", "READY", "STOPPED")),
        **_MAY_FAIL,
        on.Revoked: (ending.revoked, _to("BEGINNING", "RELEASED")),
    },
    Doing.BEGINNING: {
        on.Done: (transaction.begun, _to("SENDING_OFFSETS", "EMITTING", "PRODUCING")),
        **_IN_TRANSACTION,
        on.Revoked: (ending.revoked, _to("BEGINNING", "RELEASED")),
    },
    Doing.SENDING_OFFSETS: {
        on.Done: (transaction.offsets_sent, _to("PRODUCING", "FLUSHING", "READY", "STOPPED")),
        **_IN_TRANSACTION,
    },
    Doing.EMITTING: {on.Flushed: (transaction.emitted, _to("PRODUCING", "DISCARDING", "STOPPED")), **_MAY_FAIL},
    Doing.PRODUCING: {on.Done: (transaction.produced, _to("FLUSHING", "SENDING_OFFSETS")), **_IN_TRANSACTION},
    Doing.FLUSHING: {
        on.Flushed: (
            transaction.flushed,
            _to("COMMITTING", "SENDING_OFFSETS", "ASSIGNING", "DISCARDING", "STOPPED", "RELEASED"),
        ),
        **_IN_TRANSACTION,
    },
    Doing.COMMITTING: {
        on.Committed: (
            transaction.committed,
            _to("READY", "CALLING", "ASSIGNING", "FETCHING_INPUTS", "DISCARDING", "STOPPED", "RELEASED"),
        ),
        **_IN_TRANSACTION,
    },
    Doing.DISCARDING: {
        on.Done: (recovery.discarded, _to("INITIALISING")),
        **_MAY_END,
        on.Revoked: (ending.interrupted, _to("DISCARDING", "RELEASED")),
    },
    Doing.STOPPED: {
        on.Assigned: (recovery.assigned, _to("INITIALISING")),
        **_MAY_END,
        on.Revoked: (ending.interrupted, _to("DISCARDING", "RELEASED")),
    },
    Doing.RELEASED: {},
}
"""What may happen in each state: event -> (handler, states that may follow). The docs' diagram is drawn from it."""
