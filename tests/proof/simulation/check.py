"""What must be true of the logs after a run. It asks no worker and no task: logs, and the graph's functions.

Every task is judged by itself. Its attempts cut its inputs into ranges; the deliveries of each range are computed by
calling the plain functions over the input logs, and their outcomes, in the same transaction as the attempt, must be
exactly what the outputs hold. As each topic's log is an input of the next processor, all of that together says that the
graph has computed what a plain program would have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from cues_kafka.core.records import KEY, Totals
from cues_kafka.graph.names import changelog_topic
from cues_kafka.ports.log import WireMessage
from cues_kafka.records.reading import read_record
from tests.proof.simulation.graphs import ERRORS, GRAPH, Bad, outcome
from tests.proof.simulation.logs import Logs, read, require
from tests.proof.simulation.options import EXACTLY_ONCE
from tests.proof.simulation.run import Simulation, Traced
from tests.proof.simulation.strategies import StrategyJudge, never_again
from tests.proof.simulation.tasks import TaskJudge


def check(simulation: Simulation) -> None:
    """
    Look at all that a run has left.

    Raises:
        Violation: an invariant of docs/protocol.md does not hold.
    """
    options, logs = simulation.options, read(simulation)
    _sources(simulation, logs)
    require(not simulation.called_while_held, "paused, and called", simulation.called_while_held)
    for part in options.parts:
        backing = simulation.planned[part.name].backing
        for partition in range(options.partitions):
            if simulation.strategies[part.name] != {EXACTLY_ONCE}:
                StrategyJudge(simulation, logs, part, partition).check()
                continue
            task = TaskJudge(simulation, logs, part, partition, logs.records[backing, partition])
            task.check()
            if part.store:
                task.store(logs.changes[changelog_topic(GRAPH, part.name, "seen"), partition])
            if part.kind == "alts" and part.effects and not simulation.repeats:
                task.choices([call for call in simulation.calls if call.task == f"{part.name}/{partition}"])
    never_again(simulation.calls, stale=options.stale > 0)
    if not simulation.repeats:
        _hashes(simulation.calls)
    known = {f"{simulation.graph.name}.{part.name}/{p}" for part in options.parts for p in range(options.partitions)}
    require(logs.outcomes.keys() <= known, "I14 outcomes of unknown tasks", logs.outcomes.keys() - known)
    compare(simulation, logs)


def _sources(simulation: Simulation, logs: Logs) -> None:
    for name, sent in simulation.sent.items():
        there = [v for (topic, _), log in logs.inputs.items() if topic == name for v in log.values()]
        require(sorted(there) == sorted(sent), f"the workload itself is wrong: {name}")


def _hashes(calls: Iterable[Traced]) -> None:
    """I6: one hash for all attempts of a delivery, and one delivery for a hash."""
    found: dict[tuple[str, tuple[str, ...]], str] = {}
    for call in calls:
        known = found.setdefault((call.part, call.values), call.hash)
        require(known == call.hash, "I6 another hash at another attempt", call)
    require(len(set(found.values())) == len(found), "I6 two deliveries with one hash")


def compare(simulation: Simulation, logs: Logs) -> None:
    """
    The graph as a plain program: where no order matters, its outputs are computed without any log but the sources'.

    Joins pair by order, which several writers of one partition make free; and what was quarantined has no output. Under
    other strategies some of it may be missing, or be there more than once.
    """
    options = simulation.options
    quarantined = any(
        one.topic == ERRORS and one.value.kind == "quarantine" for found in logs.outcomes.values() for one in found
    )
    if quarantined or any(part.kind == "join" for part in options.parts):
        return
    values: dict[str, list[str]] = defaultdict(list, {name: list(found) for name, found in simulation.sent.items()})
    for part in options.parts:
        for value in [value for topic in part.inputs for value in values[topic]]:
            made = outcome(part, (value,))
            for one in () if isinstance(made, Bad) else made:
                values[one.topic].append(one.value)
    for topic, expected in values.items():
        there = [value for (name, _), log in logs.inputs.items() if name == topic for value in log.values()]
        found, wanted = Counter(there), Counter(expected)
        if simulation.repeats:
            found = Counter(set(there))
        less = found.keys() <= wanted.keys() and found <= wanted
        require(less if simulation.drops else found == wanted, f"{topic}: not what a plain program makes")


def totals(simulation: Simulation) -> Totals:
    """Of all tasks, by their newest records."""
    found = Totals()
    for topic in simulation.backing:
        newest: dict[int, WireMessage] = {}
        for message in simulation.broker.messages(topic):
            if message.key() == KEY:  # the others say what operators did to the task
                newest[message.partition()] = message
        for last in newest.values():
            found = found.plus(read_record(last).totals)
    return found
