"""Drivers of Spark: they are no members of a group, so only the status that they tell shows that they run.

Kafka stamps the records of the status topic, and this machine's clock may be another one. So the clock decides only
where an error does no harm: a young record refuses at once. An older one, or one from the future, is watched: a driver
that lives tells again within a period, whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from cues_kafka.errors import BrokerError, RecoveryError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.look.status import PERIODS, StatusView
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.records.status import StatusRecord
from cues_kafka.task.clock import SystemClock

DEAD_S: Final = 86_400.0
"""A driver whose newest record is older is dead: this machine's clock is right to within a day."""

NAMED: Final = 3
"""Up to this number, processors are named."""

LOOK_S: Final = 0.5
"""How often the status topic is read while it is watched."""


def refuse_drivers(
    graph: Graph,
    broker: Broker,
    names: Collection[str],
    *,
    clock: Clock | None = None,
    tell: Callable[[str], Any] = lambda _: None,
) -> str:
    """
    Refuse while a driver of Spark runs one of these processors.

    A driver that was not shut down gracefully is watched for three of its periods, 15 s by default. If it has
    told nothing for a day, it is dead.

    Args:
        graph: the graph.
        broker: the cluster.
        names: of the processors.
        clock: time.
        tell: told why the command waits, and for how long at most.

    Returns:
        That it was not looked at, and why; empty: it was. Without a status topic no driver is seen.

    Raises:
        RecoveryError: a driver runs one of them.
    """
    clock = clock or SystemClock()
    try:
        with StatusView(graph, broker, sides=Sides(status=True), clock=clock) as view:
            _refuse_running(view, names, clock, tell)
    except BrokerError as error:
        if not error.forbidden:
            raise
        which = " or ".join(map(repr, sorted(names))) if len(names) <= NAMED else "one of these processors"
        return f"if Spark runs {which}, stop its query first: that was not looked at, because {error}"
    return ""


def _refuse_running(view: StatusView, names: Collection[str], clock: Clock, tell: Callable[[str], Any]) -> None:
    known = _told(view, names)
    doubtful = {}
    for task, said in known.items():
        for_s = clock.time() - said.told_s
        if 0 <= for_s <= PERIODS * said.every_s:
            raise _runs(said, f"reported it {for_s:.0f} s ago")
        if for_s <= DEAD_S:
            doubtful[task] = said
    began_s = clock.monotonic()
    for said in {said.owner: said for said in doubtful.values()}.values():
        tell(
            f"{said.owner} on Spark was not shut down gracefully; waiting for up to {PERIODS * said.every_s:.0f} s, to "
            "see whether it still runs"
        )
    while doubtful:
        clock.sleep(LOOK_S)
        waited_s = clock.monotonic() - began_s
        now = _told(view, names)
        for task, said in now.items():
            if said != known.get(task):
                ahead_s = clock.time() - said.told_s
                raise _runs(said, f"reported it while this command waited{_clocks(ahead_s, said)}")
        doubtful = {task: said for task, said in doubtful.items() if task in now and waited_s < PERIODS * said.every_s}


def _told(view: StatusView, names: Collection[str]) -> Mapping[str, StatusRecord]:
    """What drivers told last of their tasks, those left out that were shut down gracefully."""
    return {
        task: said
        for task, said in view.told().items()
        if said.owner.runtime == "spark" and said.state != "left" and _processor(said) in names
    }


def _processor(said: StatusRecord) -> str:
    return said.task.partition("/")[0]


def _runs(said: StatusRecord, when: str) -> RecoveryError:
    return RecoveryError(
        f"{said.owner} runs {_processor(said)} on Spark, and {when}. Stop it first. If it was killed, wait until it "
        f"has not reported for {PERIODS * said.every_s:.0f} s."
    )


def _clocks(ahead_s: float, said: StatusRecord) -> str:
    """What a record that has just come says of this machine's clock."""
    if 0 <= ahead_s <= PERIODS * said.every_s:
        return ""
    where = "ahead of" if ahead_s > 0 else "behind"
    return f" (the clock of this machine is about {abs(ahead_s):.0f} s {where} the cluster's)"
