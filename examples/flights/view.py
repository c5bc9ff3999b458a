"""The browser view beside the demo: `cues-kafka ui` in a process of its own, which ends with the demo."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from examples.flights.database import NONE


class NoView(Exception):
    """The view has not started."""


def target(*, native: bool, database: str) -> str:
    """The graph that runs, as MODULE:GRAPH; without a database it has no ledger."""
    module = "without_ledger" if database == NONE else "graph"
    return f"examples.flights.{module}:{'plain' if native else 'graph'}"


@contextmanager
def watched(graph: str, bootstrap: str, say: Callable[[str], None]) -> Iterator[str]:
    """
    Run the view, print its address, and open it in a browser if this machine has a screen.

    Args:
        graph: MODULE:GRAPH.
        bootstrap: the cluster.
        say: prints a line.

    Returns:
        The address, with its token.

    Raises:
        NoView: it has not started; the text is what it has printed.
    """
    command = [sys.executable, "-m", "cues_kafka.cli.main", "ui", graph, "--bootstrap", bootstrap]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # the only one; none if the process ends
            found = re.search(r"http://\S+", line)
            if found is None:
                raise NoView(f"the view has not started: {line}{_text(log)}")
            say(f"Watch it: {found[0]}")
            if has_screen():
                webbrowser.open(found[0])
            yield found[0]
        finally:
            process.terminate()


def _text(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode(errors="replace")


def has_screen() -> bool:
    """Whether a browser with windows can be opened; one in the terminal would take it from the demo."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
