"""``cues-kafka lineage``: the messages that a message was made of, back to the sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import as_tools_of, at_least
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.graph.times import shown_time

if TYPE_CHECKING:
    from cues_kafka.operate.look.lineage import Ancestor, Changed

epilog = """
\b
Examples:
  cues-kafka lineage shop.bills/0@17
  cues-kafka lineage shop.errors/2@4711 --json | jq .inputs
  cues-kafka lineage shop.totals/0@9 --most 20 --bootstrap localhost:9092
  # also the changed entries of stores, and the effects
  cues-kafka lineage shop.bills/0@17 --changes --graph shop:graph
  # on a secured cluster, as the user of a verifier
  cues-kafka lineage shop.bills/0@17 --graph shop:graph --profile verifier

The command finds the ancestors by the provenance headers of the messages, so it
needs no graph. --changes reads the records and changelogs of the tasks; with
--graph also the graph's databases and stores of files. On a secured cluster,
log in as the verifier of the graph that --graph names. Exits with 2 if the
message does not exist, and with 1 if the cluster cannot be read.
"""

MOST_TEXT = 200
"""Characters of an error that a line shows."""

_STATES = {
    "sent": "sent to the topic; it has no provenance header",
    "entry": "an entry of a store; it has no provenance header",
    "trimmed": "no longer there: the beginning of its partition was deleted",
    "compacted": "no longer there: compaction removed it",
    "recreated": "no longer there: its topic was deleted",
    "not followed": "not looked at, because --most messages were",
}


def lineage(
    place: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC/P@OFFSET", hidden=True, help="The message: orders/3@17 is offset 17 of partition 3."
        ),
    ],
    *,
    most: Annotated[
        int, typer.Option("--most", metavar="N", callback=at_least(1), help="Look at this many messages at most.")
    ] = 1_000,
    graph: Annotated[str, typer.Option(metavar="MODULE:GRAPH", help="Read as the verifier of this graph.")] = "",
    changes: Annotated[
        bool, typer.Option("--changes", help="Also show changed entries of stores and, with --graph, effects.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tree as JSON.")] = False,
    cluster: ClusterOptions,
) -> None:
    """
    Show where a message comes from.

    Prints a tree of the messages that it was made of, back to the sources.
    An ancestor that was deleted since is shown with its place.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.look.lineage import lineage as walk
    from cues_kafka.operate.look.lineage import parse_place
    from cues_kafka.task.making.patterns import on_cluster

    topic, offset = parse_place(place)
    declared = load_graph(graph) if graph else None
    broker = open_broker(cluster.kafka())
    try:
        declared = on_cluster(declared, broker) if declared else None
        with as_tools_of(graph):
            root = walk(broker, topic, offset, most=most, graph=declared, changes=changes)
    finally:
        broker.close()
    if as_json:
        say_lines(json.dumps(root.to_dict(), indent=2))
    else:
        for line in tree(root):
            say(line)


def tree(root: Ancestor) -> Iterator[str]:
    """The lines of the tree. A message that is there twice has its ancestors once."""
    seen: set[int] = set()
    left: list[tuple[str, str, str, Ancestor]] = [("", "", "", root)]
    while left:
        indent, branch, binding, one = left.pop()
        again = id(one) in seen
        seen.add(id(one))
        yield f"{indent}{branch}{binding}{_line(one)}{', see above' if again else ''}"
        below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        if again:
            continue
        inputs = [(f"{binding}: ", parent) for binding, parent in one.inputs]
        besides = [*([_batch(one)] if one.batch is not None else ()), *_besides(one)]
        for number, line in enumerate(besides, 1):
            yield f"{below}{'└─ ' if number == len(besides) and not inputs else '├─ '}{line}"
        branches = [*["├─ "] * (len(inputs) - 1), "└─ "]
        left += [(below, mark, *parent) for mark, parent in zip(branches, inputs, strict=False)][::-1]


def _line(one: Ancestor) -> str:
    words = [one.place]
    if one.timestamp_ms is not None:
        words += [_time(one.timestamp_ms), *([] if one.key is None else [f"key {_shown(one.key)}"])]
    if one.made is None:
        words.append(_STATES[one.state])
        return "  ".join(words)
    which = f", record {one.made.index + 1} of {one.made.count}" if one.made.count > 1 else ""
    words.append(f"by {one.made.task}, batch {one.made.sequence}{which}")
    if one.made.timer is not None:
        key, due_ms = one.made.timer
        words.append(f"timer {key!r}, due {_time(due_ms)}, which was set with")
    if one.made.replay is not None:
        words.append(f"replay {one.made.replay[0]} of error message {one.replay_of}, which delivered again")
    if one.error:
        words.append(f"error {' '.join(one.error.split())[:MOST_TEXT]}")
    return "  ".join(words)


def _besides(one: Ancestor) -> Iterator[str]:
    """What attempts did besides writing messages: the one that wrote this one, and those that took it."""
    if one.changed is not None:
        yield from _did(one.changed)
    for taken in one.taken:
        if taken.sequence is None:
            yield f"{taken.task}: has not taken it, or its records no longer show"
            continue
        yield f"{taken.task}: took it in batch {taken.sequence}"
        yield from (f"{taken.task}: {line}" for line in _did(taken))


def _did(changed: Changed) -> Iterator[str]:
    of = f" with its batch of {changed.deliveries} deliveries" if changed.deliveries > 1 else ""
    for store in changed.stores:
        if store.count is None:
            yield f"store {store.store}: compaction has removed what the batch changed in it"
            continue
        entries = [f"{'deleted' if entry.deleted else 'set'} {entry.key!r} ({entry.place})" for entry in store.entries]
        more = store.count - len(entries)
        yield f"store {store.store}{of}: {', '.join(entries)}{f' and {more:,} more' if more else ''}"
    for effect in changed.effects:
        found = f"{', '.join(effect.found)}; " if effect.found else ""
        yield f"effect {effect.name} ({effect.what}): {found}{effect.says}"


def _batch(one: Ancestor) -> str:
    """What stands in the place of messages."""
    batch = one.batch
    assert batch is not None
    ranges = ", ".join(
        f"{topic}/{partition}@{start} to {end - 1}"
        for topic, places in batch.ranges.items()
        for partition, (start, end) in sorted(places.items())
        if start < end
    )
    return {
        "staged": f"made by Spark of all rows of {batch.spark}: {ranges or 'what it took is no longer recorded'}",
        "feed": f"read by a feed, whose batch ended at its place {batch.place}",
        "held back": f"of no single message: made when the task had read all before {batch.place}",
        "entry": f"changed by {batch.place}, which took what is in {ranges}",
        "unknown": "made of no single message; the records of its task no longer show which",
    }[batch.kind]


def _shown(key: bytes) -> str:
    """A key in the form of Python: text, or bytes that are not UTF-8."""
    try:
        return repr(key.decode())
    except UnicodeDecodeError:
        return repr(key)


def _time(ms: int) -> str:
    """The time of a message; with milliseconds if it has any."""
    return shown_time(ms, fine=ms % 1_000 != 0)
