"""The program ``cues-kafka``: a list of the modules that hold its commands."""

from __future__ import annotations

from importlib import metadata
from typing import Annotated

import typer

from cues_kafka.cli import (
    broker,
    config,
    cuts,
    delete,
    docs,
    doctor,
    errors,
    files,
    grant,
    lineage,
    maintenance,
    pause,
    plan,
    rebuild,
    rename,
    run,
    schemas,
    send,
    status,
    tail,
    topology,
    verify,
)
from cues_kafka.cli.options import Command, Commands, Program

app = Commands(
    name="cues-kafka",
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes wrap examples so that they cannot be copied
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command(cls=Command, epilog=run.epilog)(run.run)
app.command(cls=Command, epilog=plan.epilog)(plan.plan)
app.command(cls=Command, epilog=grant.epilog)(grant.grant)
app.command(cls=Command, epilog=topology.epilog)(topology.topology)
app.command(cls=Command, epilog=status.epilog)(status.status)
app.command(cls=Command, epilog=pause.pause_epilog)(pause.pause)
app.command(cls=Command, epilog=pause.resume_epilog)(pause.resume)
app.command(cls=Command, epilog=verify.epilog)(verify.verify)
app.command(cls=Command, epilog=doctor.epilog)(doctor.doctor)
app.command(cls=Command, epilog=maintenance.reset_epilog)(maintenance.reset)
app.command(cls=Command, epilog=maintenance.adopt_epilog)(maintenance.adopt)
app.command("accept-loss", cls=Command, epilog=maintenance.accept_loss_epilog)(maintenance.accept_loss)
app.command(cls=Command, epilog=maintenance.strategy_epilog)(maintenance.strategy)
app.command(cls=Command, epilog=maintenance.migrate_epilog)(maintenance.migrate)
app.command(cls=Command, epilog=rename.epilog)(rename.rename)
app.command(cls=Command, epilog=rebuild.epilog)(rebuild.rebuild)
app.command(cls=Command, epilog=cuts.drain_epilog)(cuts.drain)
app.command(cls=Command, epilog=cuts.cuts_epilog)(cuts.cuts)
app.command(cls=Command, epilog=delete.epilog)(delete.delete)
app.command(cls=Command, epilog=config.epilog)(config.config)
app.command(cls=Command, epilog=files.epilog)(files.files)
app.command(cls=Command, epilog=lineage.epilog)(lineage.lineage)
app.command(cls=Command, epilog=send.epilog)(send.send)
app.command(cls=Command, epilog=tail.epilog)(tail.tail)
app.add_typer(errors.app, name="errors")
app.add_typer(schemas.app, name="schemas")
app.add_typer(broker.app, name="broker")
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
    """Exactly-once processing of Kafka messages with plain Python functions."""


def main() -> None:
    """Run the program."""
    app()


if __name__ == "__main__":
    main()
