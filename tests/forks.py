"""
Programs in processes of their own, forked from one that has imported the package.

The 97 of the pages cost 25 s of processor time instead of 46.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
import threading
from pathlib import Path

LIMIT_S = 100.0


def run_program(program: Path, *arguments: str) -> str:
    """What a program in a file prints; a failure shows all of it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "cues_kafka.cli.main", "confluent_kafka"])
    printed = program.with_suffix(".out")
    process = context.Process(target=_run, args=(str(program), arguments, str(printed)))
    process.start()
    process.join(LIMIT_S)
    if process.exitcode is None:
        process.kill()
        process.join()
    said = printed.read_text(encoding="utf-8")
    assert process.exitcode == 0, f"{program.read_text(encoding='utf-8')}\nended with {process.exitcode}\n{said}"
    return said


def _run(program: str, arguments: tuple[str, ...], printed: str) -> None:
    """As Python runs a file, to its end: its threads end first, then what it has registered is done."""
    with Path(printed).open("wb") as out:
        for stream in (1, 2):
            os.dup2(out.fileno(), stream)
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(Path(program).parent))
    runpy.run_path(program, run_name="__main__")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
