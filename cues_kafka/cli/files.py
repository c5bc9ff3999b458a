"""``cues-kafka files``: the files that are committed in a store."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

epilog = """
\b
Examples:
  cues-kafka files s3://bucket/prefix flights
  cues-kafka files file:///data/lake --json

Only files of committed batches are listed. Credentials come from the
environment. Exits with 2 if the store or its log cannot be read.
"""


def files(
    url: Annotated[str, typer.Argument(metavar="URL", hidden=True, help="Address of the store, as given to Blobs.")],
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", hidden=True, help="Name of a table. Without it, all files.")
    ] = None,
    *,
    options: Annotated[str, typer.Option("--options", metavar="JSON", help="Options for fsspec, as JSON.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON text for each file.")] = False,
) -> None:
    """List the files that processors have committed in a store."""
    from cues_kafka.errors import ConfigError, GraphError
    from cues_kafka.graph.blobs import check_address
    from cues_kafka.sinks.blobs.reading import files as committed

    try:
        check_address(url)
        given = json.loads(options or "{}")
    except (GraphError, ValueError) as error:
        raise ConfigError(f"cues-kafka files: {error}") from None
    for one in committed(url, table, options=given):
        typer.echo(json.dumps(dataclasses.asdict(one)) if as_json else one.url)
