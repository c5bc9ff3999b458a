"""Commands that are imported when they are asked for: the program's own help needs only their names and summaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer.main

from cues_kafka.cli.options import Command, Commands


@dataclass(frozen=True, slots=True)
class Listed:
    """
    A command of the program, or a group of commands.

    Attributes:
        place: ``module:name`` in `cues_kafka.cli`, of its function or of the group.
        summary: the first line of its help.
        epilog: the name of what stands below its help, in the same module.
    """

    place: str
    summary: str
    epilog: str = "epilog"

    def load(self, name: str) -> Any:
        """Import the command, and make it."""
        module, _, own = self.place.partition(":")
        found = import_module(f"cues_kafka.cli.{module}")
        alone = Commands(rich_markup_mode=None)
        made = getattr(found, own)
        if isinstance(made, Commands):
            alone.add_typer(made, name=name)
        else:
            alone.command(name, cls=Command, epilog=getattr(found, self.epilog))(made)
        return typer.main.get_group(alone).commands[name]


class LoadedCommands(Mapping[str, Any]):
    """Commands by name, each made when it is first asked for."""

    def __init__(self, listed: Mapping[str, Listed]) -> None:
        self._listed = listed
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._listed[name].load(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)
