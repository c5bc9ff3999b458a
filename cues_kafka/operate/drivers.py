"""Drivers of Spark: they are no members of a group, so only the status that they tell shows that they run."""

from __future__ import annotations

from collections.abc import Collection

from cues_kafka.errors import BrokerError, RecoveryError
from cues_kafka.graph.definition import Graph
from cues_kafka.operate.status import PERIODS, StatusView
from cues_kafka.plan.topics import Sides
from cues_kafka.ports import Broker
from cues_kafka.runtime.task.clock import SystemClock


def refuse_drivers(graph: Graph, broker: Broker, names: Collection[str]) -> str:
    """
    Refuse while a driver of Spark has told of one of these processors within three periods, as `status` has it.

    Returns:
        Why it was not looked at; empty: it was. Without a status topic no driver is seen.

    Raises:
        RecoveryError: a driver runs one of them.
    """
    try:
        with StatusView(graph, broker, sides=Sides(status=True)) as view:
            told = view.told()
    except BrokerError as error:
        if not error.forbidden:
            raise
        return f"whether a driver of Spark runs was not looked at: {error}"
    for task, said in told.items():
        name, for_s = task.partition("/")[0], SystemClock().time() - said.told_s
        over = said.state == "left" or for_s > PERIODS * said.every_s
        if name in names and said.owner.runtime == "spark" and not over:
            raise RecoveryError(
                f"{said.owner} runs {name} on Spark, and told so {max(0.0, for_s):.0f} s ago. Stop it first; one that "
                f"was killed counts until it has told nothing for {PERIODS * said.every_s:.0f} s."
            )
    return ""
