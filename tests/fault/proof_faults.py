"""Faults of three nodes, again and again: `python -m tests.fault.proof_faults --write docs/proof`.

Each part has a cluster and a graph of its own, and one kind of fault, which is repeated under load for a time. Then
everything that was committed is compared with what must be there. A part that holds writes one small JSON file; one of
the same code is not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fault.loaded import ROLES, Endured, Killed, ProxiedBroker, cut_off, roll, under_load
from tests.proof import subjects


def _killed(role: str) -> Callable[[ProxiedBroker, float], Endured]:
    def part(broker: ProxiedBroker, seconds: float) -> Endured:
        fault = Killed(broker, "proof", role)
        return under_load(broker, "proof", fault.hurt, fault.repair, seconds=seconds)

    return part


PARTS: dict[str, Callable[[ProxiedBroker, float], Endured]] = {
    **{f"{role} killed": _killed(role) for role in ROLES},
    "rolling restart": lambda broker, seconds: under_load(broker, "proof", lambda: roll(broker), seconds=seconds),
    "requests lost": lambda broker, seconds: under_load(
        broker, "proof", lambda: cut_off(broker, "proof", "request"), bootstrap=broker.front, seconds=seconds
    ),
    "answers lost": lambda broker, seconds: under_load(
        broker, "proof", lambda: cut_off(broker, "proof", "response"), bootstrap=broker.front, seconds=seconds
    ),
}
"""By the kind of fault."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault.proof_faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long the faults of a part are repeated")
    parser.add_argument("--part", choices=PARTS, action="append", help="this part; may be given again; else all parts")
    parser.add_argument("--write", type=Path, help="the folder for the results")
    given = parser.parse_args(arguments)
    code = subjects.faults()
    for part in given.part or PARTS:
        path = given.write / f"faults-{part.replace(' ', '-')}.json" if given.write else None
        if path and path.exists() and done(json.loads(path.read_text(encoding="utf-8")), code, given.seconds):
            print(f"{path}: made from this code already")
            continue
        text = json.dumps(run(part, given.seconds, code), indent=1) + "\n"
        print(text, end="", flush=True)
        if path:
            path.write_text(text, encoding="utf-8")
    return 0


def done(found: dict[str, Any], code: str, seconds: float) -> bool:
    """Whether a result is of this code, and of at least this time."""
    return bool(found["code"] == code and found["asked_s"] >= seconds)


def run(part: str, seconds: float, code: str) -> dict[str, Any]:
    """
    One part.

    Raises:
        AssertionError: something is lost, doubled, torn or out of order, or a task does not go on.
    """
    began_s = time.monotonic()
    with ProxiedBroker(3) as broker:
        endured = PARTS[part](broker, seconds)
    return {
        "code": code,
        "part": part,
        "asked_s": seconds,
        "faults": len(endured.recovered_s),
        "messages": endured.messages,
        "written twice by the producer of the input": endured.twice,
        "recovered_s": _times(endured.recovered_s),
        "silent_s": _times(endured.silent_s),
        "seconds": round(time.monotonic() - began_s),
    }


def _times(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(seconds), 1), "longest": round(max(seconds), 1)}


if __name__ == "__main__":
    sys.exit(main())
