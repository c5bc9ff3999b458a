"""``cues-kafka schemas check`` and ``cues-kafka schemas register``: compare a graph's schemas with a registry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.config import Bootstrap, ClusterOptions, File, Profile
from cues_kafka.cli.interrupted import begin
from cues_kafka.cli.options import Command, Commands, Target
from cues_kafka.cli.printing import say, say_lines
from cues_kafka.errors import ConfigError
from cues_kafka.extras import REGISTRY, require

if TYPE_CHECKING:
    from cues_kafka.codecs.registry import RegistrySchemas
    from cues_kafka.codecs.subjects import Checked

app = Commands(help="Compare a graph's schemas with a registry, and register them.", no_args_is_help=True)

Url = Annotated[
    str | None, typer.Option("--registry", metavar="URL", help="Use this registry instead of the configured one.")
]

_PLACE = """
The registry is named under [registry] in cues-kafka.toml (url, user, password or
token, ca), or in CUES_KAFKA_REGISTRY__URL and so on. Exits with 1 if a schema
is missing or does not fit, and with 2 if the graph or a setting is wrong.
Only a graph with a pattern asks the cluster, for the topics that match.
"""

_check_epilog = f"""
\b
Examples:
  cues-kafka schemas check shop:graph
  cues-kafka schemas check shop:graph --registry https://registry:8081
{_PLACE}"""

_register_epilog = f"""
\b
Examples:
  # say what would be registered
  cues-kafka schemas register shop:graph
  cues-kafka schemas register shop:graph --yes
{_PLACE}"""

_WORDS = {
    "registered": "registered",
    "new": "not registered: the subject does not exist",
    "compatible": "not registered: can be the next version",
    "incompatible": "refused: not compatible with the registered versions",
}


@app.command(cls=Command, epilog=_check_epilog)
def check(
    target: Target,
    *,
    registry: Url = None,
    bootstrap: Bootstrap = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    profile: Profile = None,
    file: File = None,
) -> None:
    """
    Compare the declared schemas with the registry.

    MODULE:GRAPH names the graph: shop:graph, path/shop.py:graph, or path/shop.toml. Nothing is written.
    """
    found, _ = _checked(target, registry, ClusterOptions(bootstrap, profile, file))
    if as_json:
        say_lines(json.dumps([_plain(one) for one in found], indent=2))
    else:
        _show(found)
    if any(one.unreadable or (one.subject.written and one.state != "registered") for one in found):
        raise typer.Exit(1)


@app.command(cls=Command, epilog=_register_epilog)
def register(
    target: Target,
    *,
    registry: Url = None,
    bootstrap: Bootstrap = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, only say what would happen.")] = False,
    profile: Profile = None,
    file: File = None,
) -> None:
    """
    Register the schemas that the graph writes.

    MODULE:GRAPH names the graph: shop:graph, path/shop.py:graph, or path/shop.toml. If one schema does not fit, none is
    registered.
    """
    found, schemas = _checked(target, registry, ClusterOptions(bootstrap, profile, file))
    _show(found)
    missing = [one for one in found if one.subject.written and one.state != "registered"]
    if any(one.state == "incompatible" for one in missing):
        say("Nothing was registered. Change the schema, or the subject's compatibility.", err=True)
        raise typer.Exit(1)
    if missing and not yes:
        say("Nothing was registered. Add --yes to do it.", err=True)
        raise typer.Exit(1)
    begin()
    for one in missing:
        number = schemas.register(one.subject.name, one.subject.own)
        say(f"{one.subject.name}: registered as {number}")


def _checked(target: str, url: str | None, cluster: ClusterOptions) -> tuple[list[Checked], RegistrySchemas]:
    from cues_kafka.brokers.options import Registry
    from cues_kafka.cli.loading import load_graph, with_topics_of_patterns
    from cues_kafka.codecs.registry import schemas_of
    from cues_kafka.codecs.subjects import check as compare
    from cues_kafka.codecs.subjects import subjects
    from cues_kafka.graph.packages import codecs_of

    graph = load_graph(target)
    require(f"graph {graph.name!r}", [REGISTRY, *codecs_of(graph, graph.topics_used())])
    options = replace(cluster, bootstrap=None).kafka().registry
    if url is not None:
        options = Registry(url) if options is None else replace(options, url=url)
    if options is None:
        raise ConfigError("no registry is named. Give --registry URL, or url under [registry] in cues-kafka.toml.")
    graph = with_topics_of_patterns(graph, cluster)
    schemas = schemas_of(options)
    return [compare(one, schemas) for one in subjects(graph)], schemas


def _show(found: list[Checked]) -> None:
    if not found:
        say("No topic of this graph has a schema in a registry.")
    for one in found:
        say(f"{one.subject.topic}: {one.subject.name}: {_state(one)}")
        for problem in one.unreadable:
            say(f"  messages of the newest version cannot be read: {problem}")
        if _is_missing(one):
            own = one.subject.own
            names = f", references {', '.join(name for name, _ in own.references)}" if own.references else ""
            say_lines(f"  {own.kind}{names}: {own.text}")


def _is_missing(one: Checked) -> bool:
    """Whether the schema itself is shown: an administrator may have to register it."""
    return one.subject.written and one.state in ("new", "compatible")


def _state(one: Checked) -> str:
    if one.state == "registered" or one.subject.written:
        return _WORDS[one.state]
    if one.state == "new":
        return (
            "read only, not compared: the subject does not exist. Check the registry's address and the subject's name."
        )
    if one.unreadable:
        return "read only, differs from the newest version"
    return "read only: messages of the newest version are read into the declared schema"


def _plain(one: Checked) -> dict[str, object]:
    subject = one.subject
    return {
        "topic": subject.topic,
        "subject": subject.name,
        "written": subject.written,
        "state": one.state,
        "type": subject.own.kind,
        "schema": subject.own.text,
        "references": [name for name, _ in subject.own.references],
        "unreadable": list(one.unreadable),
    }
