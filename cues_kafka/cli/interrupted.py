"""What a command says when Ctrl-C interrupts it: what was done, what was not, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Final

INTERRUPTED: Final = 130
"""The exit code: 128, and the number of SIGINT, as shells have it."""

MOVED: Final = "Each task has moved, or stands where it stood. Run the same command again: it moves the rest."

AGAIN: Final[Mapping[str, str]] = {
    "reset": MOVED,
    "adopt": MOVED,
    "accept-loss": MOVED,
    "strategy": MOVED,
    "migrate": MOVED,
    "rename": "No task has two names, and none is lost. Until all have moved, neither name can be started. "
    "Run the same command again: it goes on.",
    "rebuild": "Each task has its old entries or the new ones. Run the command again to go on.",
    "delete": "What is named above as deleted is gone, and all else is there. "
    "Run the same command again: it deletes the rest.",
    "errors replay": "Requests that were written stay, and their tasks settle them. "
    "Run the same command again: it asks for the rest, and for none twice.",
    "errors drop": "Requests that were written stay, and their tasks settle them. "
    "Run the same command again: it asks for the rest, and for none twice.",
    "plan": "What was created stays. Run the same command again: it creates the rest.",
    "grant": "What was granted stays. Run the same command again: it grants the rest.",
    "schemas register": "What was registered stays. Run the same command again: it registers the rest.",
    "resume": "Run the same command again: it takes back what is still paused.",
    "cuts": "`cues-kafka cuts MODULE:GRAPH` shows whether the cut is still there.",
    "send": "Messages may have been sent already, and sending them again repeats them. With --atomic all or none were "
    "sent; with --id the same command sends the rest, and none twice.",
}
"""By command: the state that an interruption leaves, and how to go on. Those that are missing change nothing."""

_COMMAND: ContextVar[str] = ContextVar("command", default="")
_BEGUN: ContextVar[bool] = ContextVar("begun", default=False)


def begin() -> None:
    """The command changes something from here on."""
    _BEGUN.set(True)


def not_begun(command: str) -> None:
    """A command of this name, such as ``errors replay``, begins; it has changed nothing yet."""
    _COMMAND.set(command)
    _BEGUN.set(False)


def interrupted(interrupt: KeyboardInterrupt) -> Iterator[str]:
    """What is said, line by line; the interruption has notes on what was done."""
    command = _COMMAND.get()
    if not _BEGUN.get() or command not in AGAIN:
        yield "Interrupted. Nothing was changed."
        return
    yield "Interrupted."
    yield from getattr(interrupt, "__notes__", ())
    yield AGAIN[command]
