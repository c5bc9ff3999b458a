"""The program ``cues-kafka``: a list of the modules that hold its commands."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from cues_kafka.cli import broker, config, docs, maintenance, plan, run, verify
from cues_kafka.cli.options import Command
from cues_kafka.cli.watch import WRONG
from cues_kafka.errors import ConfigError, CuesError, GraphError

app = typer.Typer(
    name="cues-kafka",
    help="Graphs of functions between Kafka topics, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes wrap examples so that they cannot be copied
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(broker.app, name="broker")
app.command(cls=Command, epilog=run.epilog)(run.run)
app.command(cls=Command, epilog=plan.epilog)(plan.plan)
app.command(cls=Command, epilog=verify.epilog)(verify.verify)
app.command(cls=Command, epilog=maintenance.reset_epilog)(maintenance.reset)
app.command("accept-loss", cls=Command, epilog=maintenance.accept_loss_epilog)(maintenance.accept_loss)
app.command(cls=Command, epilog=config.config_epilog)(config.config)
app.add_typer(docs.app, name="docs")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cues-kafka {metadata.version('cues-kafka')}")
        raise typer.Exit


@app.callback()
def _groups(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Graphs of functions between Kafka topics, exactly once."""


def main() -> None:
    """Run it; an error of ours is printed as its message, without a traceback, and ends it with 1, or `WRONG`."""
    try:
        app()
    except CuesError as error:
        typer.secho(f"cues-kafka: {error}", fg="red", err=True)
        sys.exit(WRONG if isinstance(error, ConfigError | GraphError) else 1)


if __name__ == "__main__":
    main()
