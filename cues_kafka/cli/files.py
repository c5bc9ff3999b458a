"""``cues-kafka files``: the files that are committed in a store."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Annotated

import typer

epilog = """
\b
Examples:
  cues-kafka files s3://bucket/prefix flights
  cues-kafka files file:///data/lake --json
  cues-kafka files file:///data/lake --check

Only files of committed batches are listed. Credentials come from the
environment. Exits with 2 if the address has no store, or the store lacks the
table, and with 1 if the store does not answer or its log lacks an entry. With
--check, lists the committed files that are missing or whose size has changed,
and exits with 1 if there are any.
"""


def files(
    url: Annotated[str, typer.Argument(metavar="URL", hidden=True, help="Address of the store, as given to Blobs.")],
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", hidden=True, help="Name of a table. Without it, all files.")
    ] = None,
    *,
    options: Annotated[str, typer.Option("--options", metavar="JSON", help="Options for fsspec, as JSON.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON text for each file.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="List only files that are missing or truncated; exit with 1 if there are any."),
    ] = False,
) -> None:
    """List the files that processors have committed in a store."""
    from cues_kafka.errors import ConfigError, GraphError
    from cues_kafka.graph.blobs import check_address
    from cues_kafka.sinks.blobs.reading import missing_files, read_files
    from cues_kafka.sinks.blobs.store import open_store
    from cues_kafka.words import count, visible

    try:
        check_address(url)
        given = json.loads(options or "{}")
        if not isinstance(given, dict):
            raise GraphError(f'--options {options}: takes an object in JSON, such as {{"anon": true}}.')
    except (GraphError, ValueError) as error:
        raise ConfigError(f"cues-kafka files: {error}") from None
    found, terminal = 0, sys.stdout.isatty()
    for one in (missing_files if check else read_files)(open_store(url, given), table):
        found += 1
        line = json.dumps(dataclasses.asdict(one)) if as_json else one.url
        typer.echo(visible(line) if terminal else line)
    if check:
        typer.echo(
            f"{count(found, 'committed file')} missing or cut." if found else "No committed file is missing or cut.",
            err=True,
        )
        if found:
            raise typer.Exit(1)
