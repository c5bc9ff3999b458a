"""``cues-kafka doctor``: find what is wrong with a graph and its cluster, with remedies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import BROKEN, WRONG, Target
from cues_kafka.cli.printing import say_lines
from cues_kafka.errors import ConfigError
from cues_kafka.words import count, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cues_kafka.operate.look.doctor import Ailment

epilog = f"""
\b
Examples:
  cues-kafka doctor shop:graph
  # does the user of the deployer have the rights that it needs?
  cues-kafka doctor shop:graph --role deployer --profile deployer
  # watch open transactions, and tasks without progress, for longer
  cues-kafka doctor shop:graph --for 30
  cues-kafka doctor shop:graph --json | jq '.findings[] | select(.wrong)'

Exits with {BROKEN} if something is wrong or could not be checked, and with {WRONG} if the
graph or a setting is wrong.
"""


def doctor(
    target: Target,
    *,
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="Compare the rights of this user with those of a role; see plan --acls.")
    ] = "worker",
    seconds: Annotated[
        float,
        typer.Option("--for", metavar="SECONDS", help="How long to watch tasks and transactions that may be stuck."),
    ] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    cluster: ClusterOptions,
) -> None:
    """
    Find what is wrong with a graph and its cluster.

    Checks brokers, clocks, permissions, open transactions, groups, settings of topics, the records of tasks, and
    leftovers of removed processors. Prints a remedy for each finding. Changes nothing.
    """
    from cues_kafka.brokers.open import open_broker
    from cues_kafka.cli.loading import load_graph
    from cues_kafka.operate.look.doctor import examine
    from cues_kafka.plan.acls import Role
    from cues_kafka.task.making.patterns import on_cluster

    roles = get_args(Role)
    if role not in roles:
        raise ConfigError(f"--role {role}: this role does not exist. Roles: {', '.join(roles)}.")
    if not seconds >= 0:
        raise ConfigError(f"--for {seconds:g}: takes a number of seconds from 0 on.")
    graph, found = load_graph(target), cluster.load()
    kafka = found.kafka()
    broker = open_broker(kafka)
    try:
        graph = on_cluster(graph, broker)
        ailments = list(
            examine(graph, broker, role=role, address=found["bootstrap"], cluster=kafka, watch_s=seconds)  # type: ignore[arg-type]
        )
    finally:
        broker.close()
    wrong = sum(one.wrong for one in ailments)
    if as_json:
        data = {"graph": graph.name, "wrong": wrong, "findings": [one._asdict() for one in ailments]}
        text = json.dumps(data, indent=2)
    else:
        text = "\n".join([f"Graph {graph.name} on {found.address}", "", *_lines(ailments), "", _sum(ailments, wrong)])
    say_lines(text.replace("MODULE:GRAPH", target))
    if wrong:
        raise typer.Exit(BROKEN)


def _lines(ailments: Sequence[Ailment]) -> list[str]:
    """The findings below the name of their check; a check without a finding is fine."""
    from cues_kafka.operate.look.doctor import CHECKS, REACH, RIGHTS

    shown = []
    unreached = [one for one in ailments if one.check == REACH]
    for name in [REACH, *([] if unreached[0].wrong else [RIGHTS])] if unreached else CHECKS:
        own = [one for one in ailments if one.check == name]
        shown += [f"{name}: ok"] if not own else [f"{name}:"]
        for one in own:
            shown.append(f"  {'WRONG' if one.wrong else 'note '} {visible(one.what)}")
            shown += [f"        Remedy: {visible(one.remedy)}"] if one.remedy else []
    return [*shown, "", "Nothing else could be checked."] if unreached else shown


def _sum(ailments: Sequence[Ailment], wrong: int) -> str:
    notes = f", {count(len(ailments) - wrong, 'note')}" if len(ailments) > wrong else ""
    return f"{count(wrong, 'thing')} wrong{notes}." if wrong else f"Nothing is wrong{notes}."
