"""The program ``cues-kafka``: a table of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cues_kafka.cli.listed import Listed, LoadedCommands
from cues_kafka.cli.options import Commands, PrintsErrors

if TYPE_CHECKING:
    from typer._click.formatting import HelpFormatter

COMMANDS: Final[Mapping[str, Listed]] = {
    "run": Listed("run:run", "Run a graph until SIGTERM or Ctrl-C."),
    "plan": Listed("plan:plan", "Show what a graph would change on the cluster."),
    "grant": Listed("grant:grant", "Create the ACLs that the roles of a graph need."),
    "topology": Listed("topology:topology", "Draw a graph: topics, processors, and what they act on."),
    "status": Listed("status:status", "Show the state and the lag of each task."),
    "ui": Listed("ui:ui", "Show a running graph in a browser."),
    "pause": Listed("pause:pause", "Pause a running graph, or one of its processors.", "pause_epilog"),
    "resume": Listed("pause:resume", "Resume a graph, or one of its processors.", "resume_epilog"),
    "verify": Listed("verify:verify", "Find lost, torn, duplicated or reordered messages."),
    "doctor": Listed("doctor:doctor", "Find what is wrong with a graph and its cluster."),
    "reset": Listed(
        "maintenance:reset", "Restart a processor at another position, or a graph at a cut.", "reset_epilog"
    ),
    "adopt": Listed("maintenance:adopt", "Continue where a consumer group has stopped.", "adopt_epilog"),
    "accept-loss": Listed("maintenance:accept_loss", "Skip messages that are gone from the log.", "accept_loss_epilog"),
    "strategy": Listed("maintenance:strategy", "Change the delivery guarantee of a processor.", "strategy_epilog"),
    "migrate": Listed("maintenance:migrate", "Add inputs to a processor, or drop some.", "migrate_epilog"),
    "rename": Listed("rename:rename", "Rename a processor, so that it continues under another name."),
    "rebuild": Listed("rebuild:rebuild", "Rebuild the stores of a processor from its input."),
    "drain": Listed("cuts:drain", "Quiesce a graph, take a cut (a snapshot), and resume it.", "drain_epilog"),
    "cuts": Listed("cuts:cuts", "List the cuts of a graph, or delete one.", "cuts_epilog"),
    "delete": Listed("delete:delete", "Delete what a graph has on the cluster."),
    "config": Listed("config:config", "Print each setting and where it came from."),
    "files": Listed("files:files", "List the files that processors have committed in a store."),
    "lineage": Listed("lineage:lineage", "Show where a message comes from."),
    "send": Listed("send:send", "Send messages to a topic."),
    "tail": Listed("tail:tail", "Print the committed messages of a topic."),
    "errors": Listed("errors:app", "List error messages, and replay or drop them."),
    "schemas": Listed("schemas:app", "Compare a graph's schemas with a registry, and register them."),
    "broker": Listed("broker:app", "A real Apache Kafka on this machine, without Docker."),
    "docs": Listed("docs:app", "Print reference documentation generated from the code."),
}
"""All commands, in the order of the help."""


class Program(PrintsErrors):
    """The group of all commands, of which it imports those that are asked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = LoadedCommands(COMMANDS)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Their names; typer would make each of them."""
        del ctx
        return list(COMMANDS)

    def format_commands(self, ctx: typer.Context, formatter: HelpFormatter) -> None:  # type: ignore[override]
        """Write their names and summaries."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.summary) for name, one in COMMANDS.items()])


app = Commands(
    name="cues-kafka",
    cls=Program,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes wrap examples so that they cannot be copied
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


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
