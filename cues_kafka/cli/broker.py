"""``cues-kafka broker``: a real Apache Kafka on this machine, without Docker."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cues_kafka.cli.options import AsJson, Command, Commands
from cues_kafka.errors import ConfigError
from cues_kafka.words import count

if TYPE_CHECKING:
    from cues_kafka.brokers.local.detached import RunningBroker

app = Commands(help="A real Apache Kafka on this machine, without Docker.", no_args_is_help=True)

NOT_RUNNING, NODE_DOWN = 1, 3
"""Exit codes of `broker status`."""

Name = Annotated[str, typer.Option(metavar="NAME", help="Name of the broker, if you have several.")]


@app.command(
    epilog="""
\b
Examples:
  # one node at 127.0.0.1:9092
  cues-kafka broker up
  # three nodes, on free ports
  cues-kafka broker up --nodes 3 --port 0
  # with TLS, users and ACLs
  cues-kafka broker up --secure --nodes 3
  cues-kafka broker up --name b --port 9192 --set log.retention.ms=60000
  # the version of your cluster
  cues-kafka broker up --kafka-version 3.9.2
"""
)
def up(
    *,
    nodes: Annotated[int, typer.Option(metavar="N", help="1, or 3 with replication factor 3.")] = 1,
    name: Name = "default",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the first node; the others follow. 0: free ports.")
    ] = 9092,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of Kafka; repeatable.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="TLS, users and ACLs: clients have only the rights that ACLs grant.")
    ] = False,
    version: Annotated[
        str | None,
        typer.Option(
            "--kafka-version", metavar="VERSION", help="Version of Kafka; for an unknown version, the error lists all."
        ),
    ] = None,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Tune the broker for benchmarks: full JIT, 1 GiB heap.")
    ] = False,
) -> None:
    """
    Start a broker and leave it running.

    Its data is kept until `cues-kafka broker down`. If the broker runs
    already, nodes that have ended are started again.
    """
    from cues_kafka.brokers.local import detached

    say = partial(typer.echo, err=True)
    record, started = detached.up(
        name,
        nodes=nodes,
        port=port or None,
        overrides=_settings(setting or []),
        benchmark=benchmark,
        secure=secure,
        version=version,
        say=say,
    )
    if started:
        typer.echo(f"broker {name!r} serves at {record.bootstrap}")
        typer.echo(f"logs: {record.directory}")
        if secure:
            _tell_users(record)
        return
    typer.echo(f"broker {name!r} is already running at {record.bootstrap} ({count(len(record.nodes), 'node')})")
    if secure and record.identities is None:
        raise ConfigError(f"It is not secured. End it first: cues-kafka broker down --name {name}")
    if version not in (None, record.version):
        raise ConfigError(f"It is not Kafka {version}. End it first: cues-kafka broker down --name {name}")
    for node in detached.start_again(name, say=say):
        typer.echo(f"node {node.id} had ended and is started again, with its data: pid {node.pid}")


def _tell_users(record: RunningBroker) -> None:
    """Say who may log in where, and how to."""
    from cues_kafka.brokers.local.identities import LOGINS, USERS, listener_of

    typer.echo(f"users: {', '.join(USERS)}")
    for login in LOGINS:
        typer.echo(f"  {login:12}{record.listeners[listener_of(login)]}")
    named = "" if record.name == "default" else f" --name {record.name}"
    typer.echo(f'settings of a user: eval "$(cues-kafka broker env worker{named})"')


@app.command(
    cls=Command,
    epilog="""
\b
Examples:
  # commands log in as worker after: eval "$(cues-kafka broker env worker)"
  cues-kafka broker env worker
  cues-kafka broker env deployer --login tls
  # a configuration file with a profile for each user
  cues-kafka broker env --toml > cues-kafka.toml

Prints names of files with secrets, and no secret.
""",
)
def env(
    user: Annotated[
        str,
        typer.Argument(
            metavar="USER",
            hidden=True,
            help="Of a secured broker: admin, deployer, worker, sender, client, verifier or operator.",
        ),
    ] = "",
    login: Annotated[
        str, typer.Option("--login", metavar="KIND", help="How it logs in: scram, plain, oauthbearer or tls.")
    ] = "scram",
    toml: Annotated[bool, typer.Option("--toml", help="Print a configuration file instead.")] = False,
    name: Name = "default",
) -> None:
    """Print the settings to connect to a broker."""
    import shlex
    from pathlib import Path

    from cues_kafka.brokers.local import detached

    record = detached.status(name)
    if record is None:
        choose = "Name one of them with --name, or start it" if detached.names() else "Start it"
        raise ConfigError(f"{_not_running(name)}. {choose}: cues-kafka broker up --name {name}")
    users = record.identities
    if users is None:
        if user:
            raise ConfigError(f"broker {name!r} has no users. Start one with them: cues-kafka broker up --secure")
        typer.echo(f'bootstrap = "{record.bootstrap}"' if toml else f"export CUES_KAFKA_BOOTSTRAP={record.bootstrap}")
        return
    users.security(user or "admin", login)  # type: ignore[arg-type]  # refuses what there is not
    file = users.path(f"{login}.toml")
    if toml:
        typer.echo(Path(file).read_text("utf-8"), nl=False)
        return
    typer.echo(f"export CUES_KAFKA_FILE={shlex.quote(file)}")
    typer.echo(f"export CUES_KAFKA_PROFILE={user or 'admin'}")


@app.command(
    epilog="""
\b
Examples:
  cues-kafka broker down
  cues-kafka broker down --name b
"""
)
def down(name: Name = "default") -> None:
    """Stop a broker and remove its data."""
    from cues_kafka.brokers.local import detached

    ran = detached.down(name, say=partial(typer.echo, err=True))
    typer.echo(f"broker {name!r} is stopped" if ran else f"broker {name!r} is not running")


@app.command(
    epilog=f"""
\b
Examples:
  cues-kafka broker status
  cues-kafka broker status --json | jq -r .bootstrap

Exits with 0 if all nodes answer, with {NOT_RUNNING} if the broker is not running, and with {NODE_DOWN} if
one of its nodes does not answer.
"""
)
def status(name: Name = "default", as_json: AsJson = False) -> None:
    """Print the address of a broker, and which nodes answer."""
    import json

    from cues_kafka.brokers.local import detached

    record = detached.status(name)
    if record is None:
        typer.echo("{}" if as_json else _not_running(name))
        raise typer.Exit(NOT_RUNNING)
    serving = record.serving()
    if as_json:
        typer.echo(json.dumps({**asdict(record), "serving": serving}))
        raise typer.Exit(NODE_DOWN if len(serving) < len(record.nodes) else 0)
    typer.echo(f"broker {name!r} serves at {record.bootstrap}")
    for node in record.nodes:
        state = "answers" if node.id in serving else "does not answer"
        typer.echo(f"  node {node.id}  port {node.port}  pid {node.pid}  {state}")
    if len(serving) < len(record.nodes):
        named = "" if name == "default" else f" --name {name}"
        typer.echo(f"start nodes again that have ended: cues-kafka broker up{named}")
    typer.echo(f"logs: {record.directory}")
    raise typer.Exit(NODE_DOWN if len(serving) < len(record.nodes) else 0)


def _not_running(name: str) -> str:
    """That a broker of this name does not run, and which ones do: often the name was forgotten."""
    from cues_kafka.brokers.local import detached

    others = ", ".join(detached.names())
    return f"broker {name!r} is not running" + (f"; these are: {others}" if others else "")


def _settings(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise ConfigError(f"--set {key!r} is not a setting. Write it as KEY=VALUE.")
    return {key.strip(): value for key, _, value in pairs}
