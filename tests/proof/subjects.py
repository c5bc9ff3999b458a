"""What the results of each proof are about: a digest of the code that it runs, which is recorded with its results."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from tests.proof.digest import digest, digest_of_rooms
from tests.proof.model.migrating import CHANGES
from tests.proof.model.states import Setting

PACKAGE: Final = Path(__file__).parents[2] / "cues_kafka"
MODEL: Final = Path(__file__).parent / "model"
SESSIONS: Final = Path(__file__).parent / "sessions"
SIMULATION: Final = Path(__file__).parent / "simulation"

DRIVERS: Final = ("following.py", "handlers.py", "handling.py", "migrating.py")
"""Of the explorer, what runs code of the shell in some worlds."""

BRIDGING: Final = ("bridging.py",)
"""The same of worlds with a source that redelivers."""

SHELL: Final = (
    *(f"task/calling/{name}.py" for name in ("batch", "caller", "ending", "function", "one", "plain")),
    *("task/parts/handlers.py", "task/parts/stores.py", "task/following.py"),
    *("state/handlers.py", "state/layers.py", "state/stores.py", "state/tables.py"),
    *("operate/look/changed_inputs.py", "operate/move/migrate.py"),
)
"""What decides in the shell about the worlds that run its code."""

BRIDGE: Final = ("bridges/acked.py", "bridges/ledger.py")
"""The same of worlds with a source that redelivers."""

JOINT: Final = ("workers/joint/rounds.py",)
"""The rules of joint sessions, which their worlds run."""

SIMULATED: Final = (
    *("core", "graph", "plan", "codecs", "records", "brokers/memory", "task", "workers", "client", "running"),
)
"""What a simulation runs, and beside it `SLOTS` and what gives requests up."""

SLOTS: Final = ("slot.py", "slots.py", "outcome.py", "entering.py")
"""What a simulation runs of `on_spark`."""


def core() -> str:
    """
    Of the core, the explorer, and what both take of the ports.

    Mutants do not count, since a result has none, nor what runs only in worlds with code of the shell.
    """
    away = {"__main__.py", *DRIVERS, *BRIDGING}
    explorer = [file for file in MODEL.glob("*.py") if file.name not in away and "mutant" not in file.name]
    return digest([*(PACKAGE / "core").rglob("*.py"), *explorer], shared=("cues_kafka.ports", ports()))


def ports() -> list[Path]:
    """The files of the ports."""
    return sorted(PACKAGE.glob("ports/*.py"))


def shell(files: Iterable[str] = SHELL, drivers: Iterable[str] = DRIVERS) -> str:
    """Of code of the shell, and of what runs it in the explorer."""
    return digest([*(PACKAGE / name for name in files), *(MODEL / name for name in drivers)])


def shell_of(setting: Setting) -> str:
    """Of what decides in the shell about a world; empty: nothing does."""
    if setting.window:
        return shell(BRIDGE, BRIDGING)
    return shell() if setting.handlers or setting.tables or CHANGES & {*setting.workers} else ""


def model_mutants() -> str:
    """Of the mutants of the explorer."""
    return digest(MODEL.glob("*mutant*.py"))


@cache  # a run that takes hours is about the code that it has loaded
def sessions(*, mutants: bool = False) -> str:
    """Of core, explorer, and the rules and worlds of joint sessions; of mutants too, where they are tried."""
    away = {"__main__.py", "tla.py", *(() if mutants else ("mutants.py",))}
    worlds = [file for file in SESSIONS.glob("*.py") if file.name not in away]
    return f"{digest([*worlds, *(PACKAGE / name for name in JOINT)])}.{core()}"


def simulated() -> str:
    """Of the programs that a simulation runs: a result is about these, and about no others."""
    files = [file for room in SIMULATED for file in (PACKAGE / room).rglob("*.py")]
    files += [file for file in (PACKAGE / "on_spark").rglob("*.py") if file.name in SLOTS]
    return digest([*ports(), *files, PACKAGE / "brokers" / "patience.py"])


def simulation() -> str:
    """Of the simulation itself: what it does to that code, and what it holds against it."""
    return digest(SIMULATION.glob("*.py"))


def staged() -> str:
    """Of all that decides and acts where drivers write staged."""
    return digest_of_rooms(PACKAGE, ("core", "plan", "records", "task", "on_spark"))


def faults() -> str:
    """Of all that decides and acts where native workers meet the faults of brokers."""
    return digest_of_rooms(PACKAGE, ("core", "records", "task", "workers", "brokers/kafka"))
