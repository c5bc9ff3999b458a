"""``cues-kafka broker``: a real Apache Kafka on this machine, without Docker."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cues_kafka.errors import ConfigError
from cues_kafka.words import count

app = typer.Typer(
    help="A real Apache Kafka on this machine, without Docker.", no_args_is_help=True, rich_markup_mode="rich"
)

Name = Annotated[str, typer.Option(help="Several brokers of one user differ by name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(
    epilog="""Examples:\n\n
    cues-kafka broker up                        # one node at 127.0.0.1:9092\n\n
    cues-kafka broker up --nodes 3 --port 0     # three nodes, free ports\n\n
    cues-kafka broker up --name b --port 9192 --set log.retention.ms=60000"""
)
def up(
    nodes: Annotated[int, typer.Option(help="1, or 3 with replication factor 3.")] = 1,
    name: Name = "default",
    port: Annotated[int, typer.Option(help="Port of the first node, the others follow; 0: free ones.")] = 9092,
    setting: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of Kafka.")] = None,
    benchmark: Annotated[bool, typer.Option(help="Both compilers and a heap of 1 GiB.")] = False,
) -> None:
    """Start a broker and leave it running; its data lives until `down`."""
    from cues_kafka.brokers.local import detached
    from cues_kafka.brokers.local.broker import Options

    options = Options(nodes=nodes, port=port or None, overrides=_settings(setting or []), benchmark=benchmark)
    record, started = detached.up(name, options, say=lambda text: typer.echo(text, err=True))
    if started:
        typer.echo(f"broker {name!r} serves at {record.bootstrap}")
        typer.echo(f"logs: {record.directory}")
    else:
        typer.echo(f"broker {name!r} runs already, at {record.bootstrap} ({count(len(record.nodes), 'node')})")


@app.command(
    epilog="""Examples:\n\n
    cues-kafka broker down\n\n
    cues-kafka broker down --name b"""
)
def down(name: Name = "default") -> None:
    """Stop a broker and remove its data."""
    from cues_kafka.brokers.local import detached

    typer.echo(f"broker {name!r} is stopped" if detached.down(name) else f"broker {name!r} does not run")


@app.command(
    epilog="""Examples:\n\n
    cues-kafka broker status\n\n
    cues-kafka broker status --json | jq -r .bootstrap\n\n
    Exits with 1 when it does not run."""
)
def status(name: Name = "default", as_json: AsJson = False) -> None:
    """Say where a broker is, and which of its nodes answer."""
    import json

    from cues_kafka.brokers.local import detached

    record = detached.status(name)
    if record is None:
        others = ", ".join(detached.names())
        typer.echo("{}" if as_json else f"broker {name!r} does not run" + (f"; these do: {others}" if others else ""))
        raise typer.Exit(1)
    serving = record.serving()
    if as_json:
        typer.echo(json.dumps({**asdict(record), "serving": serving}))
        return
    typer.echo(f"broker {name!r} serves at {record.bootstrap}")
    for node in record.nodes:
        state = "answers" if node.id in serving else "does not answer"
        typer.echo(f"  node {node.id}  port {node.port}  pid {node.pid}  {state}")
    typer.echo(f"logs: {record.directory}")


def _settings(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise ConfigError(f"--set {key!r} is no setting. Write it as KEY=VALUE.")
    return {key.strip(): value for key, _, value in pairs}
