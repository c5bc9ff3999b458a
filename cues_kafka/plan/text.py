"""A plan as text for people, and as data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cues_kafka.plan.acls import kafka_acls
from cues_kafka.plan.processors import FramePlan, Pairs, PartPlan, ProcessorPlan
from cues_kafka.ports import NewTopic
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.plan.plan import Plan


def lines(planned: Plan, *, topics: bool, acls: bool, principals: Mapping[str, str]) -> Iterator[str]:
    """The lines of `Plan.text`."""
    yield _headline(planned)
    yield ""
    yield from _table([*map(_processor_row, planned.processors), *map(_frame_row, planned.dataframes)])
    if topics:
        for title, names in [
            *((one.name, _processor_names(one)) for one in planned.processors),
            *((one.name, _frame_names(one)) for one in planned.dataframes),
        ]:
            yield from _section(f"Names of {title}", _table(names))
    if acls:
        for role, commands in kafka_acls(planned.acls, principals).items():
            yield from _section(f"ACLs of the {role}", commands)
    yield from _section("Topics that must exist", planned.expected)
    yield from _section("Topics to create", [_new_topic(topic, settings=topics) for topic in planned.create])
    yield from _section("Partitions to add", [f"{g.topic}: from {g.partitions} to {g.wanted}" for g in planned.grow])
    yield from _section("Changes elsewhere", planned.changes)
    unchecked = [_not_checked(one) for one in planned.processors if one.unchecked]
    yield from _section("Output bindings not checked", unchecked)
    yield from _section("Warnings", planned.warnings)
    yield from _section("Refused", planned.refusals)


def _headline(planned: Plan) -> str:
    where = "offline" if planned.brokers is None else f"on {count(planned.brokers, 'broker')}"
    parts = [count(len(planned.processors) + len(planned.dataframes), "processor")]
    if planned.processors:
        unknown = any(one.partitions is None for one in planned.processors)
        parts.append("number of tasks not known offline" if unknown else count(len(planned.tasks), "task"))
    if planned.dataframes:
        parts.append(f"{count(sum(one.slots or 0 for one in planned.dataframes), 'slot')} on Spark")
    return f"Graph {planned.graph}, planned {where}: {', '.join(parts)}"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows with their columns below each other."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    if lines := list(lines):
        yield ""
        yield f"{title}:"
        yield from (f"  {line.removeprefix('  ')}" for line in lines)


def _processor_row(one: ProcessorPlan) -> tuple[str, ...]:
    kind = one.kind if one.strategy == "exactly-once" else f"{one.kind}, {one.strategy}"
    tasks = "? tasks" if one.partitions is None else count(one.partitions, "task")
    return one.name, kind, tasks, _wires(one.inputs, one.outputs, one.errors)


def _frame_row(one: FramePlan) -> tuple[str, ...]:
    kind, slot = ("dataframe, staged", "part") if one.staged else ("dataframe", "slot")
    slots = f"? {slot}s" if one.slots is None else count(one.slots, slot)
    return one.name, kind, slots, _wires(one.inputs, one.outputs, one.errors)


def _wires(inputs: Pairs, outputs: Pairs, errors: str | None) -> str:
    """``orders -> checked; errors: shop.errors``; a binding's name is shown where there are several."""
    wires = f"{_bound(inputs)} -> {_bound(outputs)}" if outputs else _bound(inputs)
    return f"{wires}; errors: {errors}" if errors else wires


def _bound(pairs: Pairs) -> str:
    return pairs[0][1] if len(pairs) == 1 else ", ".join(f"{binding}={topic}" for binding, topic in pairs)


def _processor_names(one: ProcessorPlan) -> Iterator[tuple[str, str]]:
    yield from _names(one, one.partitions)
    if one.replay:
        yield "replay", one.replay
    for store, topic in one.changelogs:
        yield f"changelog {store}", topic
    if one.fingerprint:
        yield "fingerprint", one.fingerprint.hex()


def _frame_names(one: FramePlan) -> Iterator[tuple[str, str]]:
    yield "written", "staged" if one.staged else "direct, or staged if its plan shuffles or keeps state"
    yield from _names(one, one.slots)


def _names(one: ProcessorPlan | FramePlan, width: int | None) -> Iterator[tuple[str, str]]:
    first = f"{one.transactional_prefix}0"
    last = "" if not width or width == 1 else f" .. {one.transactional_prefix}{width - 1}"
    yield "group", one.group
    yield "transactional ids", f"{first}{last}"
    yield "backing", one.backing


def _new_topic(topic: NewTopic, *, settings: bool) -> str:
    shown = f"{topic.name}: {count(topic.partitions, 'partition')}, replication {topic.replication}"
    return shown + "".join(f", {name}={value}" for name, value in sorted(topic.config.items()) if settings)


def _not_checked(one: ProcessorPlan) -> str:
    shown = ", ".join(f'"{binding}"' for binding in one.unchecked)
    return f"{one.name}: to have them checked, annotate its result with their names as Literal[{shown}]"


def _common_data(one: PartPlan) -> dict[str, Any]:
    return {
        "name": one.name,
        "inputs": dict(one.inputs),
        "outputs": dict(one.outputs),
        "errors": one.errors,
        "group": one.group,
        "transactional_prefix": one.transactional_prefix,
        "backing": one.backing,
    }


def processor_data(one: ProcessorPlan) -> dict[str, Any]:
    """A plain processor, for `Plan.to_dict`."""
    return _common_data(one) | {
        "kind": one.kind,
        "strategy": one.strategy,
        "tasks": one.partitions,
        "waiting": [str(task) for task in one.stopped],
        "replay": one.replay,
        "changelogs": dict(one.changelogs),
        "fingerprint": None if one.fingerprint is None else one.fingerprint.hex(),
        "unchecked": list(one.unchecked),
    }


def frame_data(one: FramePlan) -> dict[str, Any]:
    """A processor of DataFrames, for `Plan.to_dict`."""
    return _common_data(one) | {"staged": one.staged, "slots": one.slots}
