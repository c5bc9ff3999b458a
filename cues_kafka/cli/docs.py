"""``cues-kafka docs``: pages that are generated from the code, so that they cannot differ from it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Annotated

import typer

from cues_kafka.cli.config import ClusterOptions
from cues_kafka.cli.options import Command, Commands, Target
from cues_kafka.errors import ConfigError

app = Commands(help="Print reference documentation generated from the code.", no_args_is_help=True)


@app.command()
def task() -> None:
    """Print the states of a task as a mermaid diagram."""
    typer.echo(state_diagram())


@app.command()
def errors() -> None:
    """Print every exception class with its cause and its remedy."""
    for line in error_lines():
        typer.echo(line)


asyncapi_epilog = """
\b
Examples:
  cues-kafka docs asyncapi shop:graph > asyncapi.json
  cues-kafka docs asyncapi shop:graph --server kafka-1:9092 --document-version 2.1.0

Asks no registry, and the cluster only for the topics of patterns.
Exits with 2 if the graph is wrong.
"""


@app.command(cls=Command, epilog=asyncapi_epilog)
def asyncapi(
    target: Target,
    *,
    server: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Address of a broker, for readers; repeatable.")
    ] = None,
    document_version: Annotated[
        str, typer.Option(metavar="VERSION", help="Version of the described application.")
    ] = "1.0.0",
    cluster: ClusterOptions,
) -> None:
    """
    Print the AsyncAPI document of a graph, as JSON.

    It has the topics as channels, the processors as operations, and the schemas of the messages.
    """
    from cues_kafka.cli.asyncapi import document
    from cues_kafka.cli.loading import load_graph, with_topics_of_patterns

    if wrong := [one for one in server or () if not one.rpartition(":")[2].isdigit() or not one.rpartition(":")[0]]:
        raise ConfigError(f"--server {wrong[0]!r}: write HOST:PORT, such as kafka-1:9092.")
    graph = with_topics_of_patterns(load_graph(target), cluster)
    typer.echo(json.dumps(document(graph, version=document_version, servers=server or ()), indent=2))


def state_diagram() -> str:
    """
    The table of transitions as mermaid.

    What may happen nearly everywhere (failure, revocation, loss) stands once, in a note.
    """
    from cues_kafka.core.events import Failed, Lost, Revoked
    from cues_kafka.core.machine import TRANSITIONS
    from cues_kafka.core.task import Doing

    lines = ["stateDiagram-v2", f"    [*] --> {Doing.NEW.name}"]
    for state, row in TRANSITIONS.items():
        arrows: dict[str, list[str]] = {}
        for event, (_, following) in row.items():
            if event in (Failed, Lost) or (event is Revoked and {s.name for s in following} == {"RELEASED"}):
                continue
            for to in Doing:  # in the order of declaration: a frozenset has none
                if to in following:
                    arrows.setdefault(to.name, []).append(event.__name__)
        lines += [f"    {state.name} --> {to}: {', '.join(events)}" for to, events in arrows.items()]
    failing = [state.name for state, row in TRANSITIONS.items() if Failed in row]
    ending = [state.name for state, row in TRANSITIONS.items() if Lost in row]
    lines.append(f"    {Doing.RELEASED.name} --> [*]")
    lines.append(f"    note right of {Doing.DISCARDING.name}")
    lines.append(f"        Failed leads here (or to STOPPED after five rounds) from: {', '.join(failing)}")
    lines.append("    end note")
    lines.append(f"    note right of {Doing.RELEASED.name}")
    lines.append(f"        Lost, and Revoked where no arrow says else, lead here from: {', '.join(ending)}")
    lines.append("    end note")
    return "\n".join(lines)


def error_lines() -> Iterator[str]:
    """Name of each class, indented below its base, with the sentences of its docstring's first paragraph."""
    from cues_kafka import errors as module

    def below(base: type[BaseException], depth: int) -> Iterator[str]:
        for cls in base.__subclasses__():
            if cls.__module__ == module.__name__:
                text = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
                yield f"{'  ' * depth}{cls.__name__}: {text}"
                yield from below(cls, depth + 1)

    yield from below(Exception, 0)
    yield from below(BaseException, 0)
