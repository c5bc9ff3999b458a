"""A plan as text for people, and as data for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cues_kafka.plan.acls import kafka_acls
from cues_kafka.plan.planned import PlanFields
from cues_kafka.plan.processors import FeedPlan, FramePlan, Pairs, PartPlan, PlannedStop, ProcessorPlan
from cues_kafka.ports.facts import NewTopic
from cues_kafka.words import count


def lines(planned: PlanFields, *, topics: bool, acls: bool, principals: Mapping[str, str]) -> Iterator[str]:
    """The lines of `Plan.text`."""
    yield _headline(planned)
    yield from _differences(planned, settings=topics)
    yield from _section("Topics that must exist", planned.expected)
    everyone: list[ProcessorPlan | FramePlan | FeedPlan] = [*planned.feeds, *planned.processors, *planned.dataframes]
    yield from _section("Processors", _table(map(_row, everyone)) if everyone else ())
    yield from _section("Edges", _table(one[:3] for one in planned.edges) if planned.edges else ())
    yield from _section("Weakest edge", _weakest(planned))
    for one in everyone if topics else ():
        yield from _section(f"Names of {one.name}", _table(_names(one)))
    if topics:
        beside = [(what, name) for what in ("status", "control") if (name := getattr(planned, what))]
        yield from _section("Names of the graph", _table(beside) if beside else ())
    if acls:
        for role, commands in kafka_acls(planned.acls, principals).items():
            yield from _section(f"ACLs of the {role}", commands)
    yield from _section("Output bindings not checked", [_not_checked(p) for p in planned.processors if p.unchecked])
    yield from _section("Notes", planned.notes)
    yield from _section("Warnings", planned.warnings)
    if planned.stops is not None:
        yield from _section("Tasks that would stop", map(_stop, planned.stops) if planned.stops else ["none"])
    yield from _section("Not well now", map(str, planned.unwell))
    yield from _section("Refused", planned.refusals)


def _weakest(planned: PlanFields) -> Iterator[str]:
    """The edges that guarantee least, with what makes them stronger."""
    for edge in planned.weakest:
        yield f"{edge.where}: {edge.level}. {edge.remedy}".rstrip()
    if planned.edges and not planned.weakest:
        yield "none: every edge is exactly once, on its condition"


def _differences(planned: PlanFields, *, settings: bool) -> Iterator[str]:
    """What applying the plan would change, a line each: `+` is made, `~` is changed."""
    if planned.brokers is not None and not planned.would_change:
        yield ""
        yield "Nothing would change."
        return
    found = [f"+ topic {_new_topic(topic, settings=settings)}" for topic in planned.create]
    found += [f"~ topic {one.topic}: partitions from {one.partitions} to {one.wanted}" for one in planned.grow]
    found += [f"~ topic {one.topic}: {one.name} from {one.was} to {one.wanted}" for one in planned.alter]
    found += [f"~ {change}" for change in planned.changes]
    yield from _section("Would create, where missing" if planned.brokers is None else "Would change", found)


def _stop(stop: PlannedStop) -> str:
    return f"{', '.join(stop.tasks)}: {stop.why.rstrip('.')}. Remedy: {stop.remedy}"


def _headline(planned: PlanFields) -> str:
    where = "offline" if planned.brokers is None else f"on {count(planned.brokers, 'broker')}"
    parts = [count(len(planned.processors) + len(planned.dataframes), "processor")]
    if planned.processors:
        unknown = any(one.partitions is None for one in planned.processors)
        parts.append("number of tasks not known offline" if unknown else count(len(planned.tasks), "task"))
    if planned.dataframes:
        parts.append(f"{count(sum(one.slots or 0 for one in planned.dataframes), 'slot')} on Spark")
    if planned.feeds:
        parts.append(f"{count(len(planned.feeds), 'feed')} of {count(sum(one.parts for one in planned.feeds), 'task')}")
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


def _row(one: ProcessorPlan | FramePlan | FeedPlan) -> tuple[str, ...]:
    match one:
        case FeedPlan():
            errors = f"; errors: {one.errors}" if one.errors else ""
            wires = f"{one.source} -> {_bound(one.outputs)}; {one.level}{errors}"
            return one.name, "feed", count(one.parts, "task"), wires
        case ProcessorPlan():
            kind = one.kind if one.strategy == "exactly-once" else f"{one.kind}, {one.strategy}"
            kind = f"{kind}, columns" if one.columnar else kind
            width, unit = one.partitions, "task"
        case FramePlan():
            width, (kind, unit) = one.slots, ("dataframe, staged", "part") if one.staged else ("dataframe", "slot")
    return one.name, kind, f"? {unit}s" if width is None else count(width, unit), _wires(one)


def _wires(one: PartPlan) -> str:
    """``orders -> checked; state: totals; errors: shop.errors``; a binding's name is shown where there are several."""
    into = one.into if isinstance(one, FramePlan) else ""
    wires = f"{_bound(one.inputs)} -> {into or _bound(one.outputs)}" if into or one.outputs else _bound(one.inputs)
    if isinstance(one, ProcessorPlan):
        if one.tables:
            wires += f"; tables: {_bound(one.tables)}"
        if one.tailers:
            wires += f"; tailers: {_bound(one.tailers)}"
        if one.changelogs:
            wires += f"; state: {', '.join(name for name, _ in one.changelogs)}"
    return f"{wires}; errors: {one.errors}" if one.errors else wires


def _bound(pairs: Pairs) -> str:
    return pairs[0][1] if len(pairs) == 1 else ", ".join(f"{binding}={topic}" for binding, topic in pairs)


def _names(one: ProcessorPlan | FramePlan | FeedPlan) -> Iterator[tuple[str, str]]:
    """All names of a processor or feed on the cluster, with what they name."""
    if isinstance(one, FramePlan):
        yield "written", "staged" if one.staged else "direct, or staged if its plan shuffles or keeps state"
    width = _width(one) or 1
    yield "group", one.group
    last = f" .. {one.transactional_prefix}{width - 1}" if width > 1 else ""
    yield "transactional ids", f"{one.transactional_prefix}0{last}"
    yield "backing", one.backing
    if not isinstance(one, FeedPlan) and one.replay:
        yield "replay", one.replay
    if isinstance(one, ProcessorPlan):
        yield from ((f"changelog {store}", topic) for store, topic in one.changelogs)
        if one.journal:
            yield "journal", one.journal
        yield from ((f"table {name}", topic) for name, topic in one.tables)
        yield from ((f"tailer {name}", topic) for name, topic in one.tailers)
        if (own := one.commit) is not None:
            yield "commits after", f"{own.max_messages:,} messages, {own.max_bytes:,} bytes or {own.max_seconds:g} s"
        if one.fingerprint:
            yield "fingerprint", one.fingerprint.hex()


def _width(one: ProcessorPlan | FramePlan | FeedPlan) -> int | None:
    if isinstance(one, FeedPlan):
        return one.parts
    return one.slots if isinstance(one, FramePlan) else one.partitions


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
        "journal": one.journal,
        "tables": dict(one.tables),
        "tailers": dict(one.tailers),
        "fingerprint": None if one.fingerprint is None else one.fingerprint.hex(),
        "unchecked": list(one.unchecked),
        "commit": None if one.commit is None else asdict(one.commit),
    }


def feed_data(one: FeedPlan) -> dict[str, Any]:
    """A feed, for `Plan.to_dict`."""
    return _common_data(one) | {"source": one.source, "tasks": one.parts, "level": one.level}


def frame_data(one: FramePlan) -> dict[str, Any]:
    """A processor of DataFrames, for `Plan.to_dict`."""
    files = {"into": one.into} if one.into else {}
    return _common_data(one) | {"staged": one.staged, "slots": one.slots, "replay": one.replay} | files
