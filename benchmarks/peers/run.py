"""Run the same jobs in cues-kafka and in its peers, check and compare: ``python benchmarks/peers/run.py [--quick]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks import report
from benchmarks.harness import Cluster
from benchmarks.peers import halves, kills, rates
from benchmarks.peers.runs import TOPICS
from benchmarks.peers.sides import PEERS, Peer
from cues_kafka.brokers.local import LocalBroker


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount of measuring; 0 leaves a section out."""

    repetitions: int
    messages: int
    kills: int
    numbers: int


FULL = Amount(repetitions=3, messages=1_000_000, kills=3, numbers=1_000)
QUICK = Amount(repetitions=1, messages=50_000, kills=1, numbers=1_000)
"""It only shows that the programs work."""

FOR_A_KILL = 4
"""A kill needs fewer messages than a rate, by this factor."""


def main() -> None:
    parser = argparse.ArgumentParser(description="The same jobs in cues-kafka and in its peers, on one broker.")
    parser.add_argument("--quick", action="store_true", help="measure a little, once, and write nothing")
    parser.add_argument("--only", action="append", choices=list(PEERS), help="run this side only; repeatable")
    for name, what in (
        ("repetitions", "runs of each job on each side"),
        ("messages", "messages of a run; a quarter of them in a run with a kill, and a tenth of all that for Faust"),
        ("kills", "runs with a kill"),
        ("numbers", "messages for the function that fails"),
    ):
        parser.add_argument(f"--{name}", type=int, help=f"{what} (default {getattr(FULL, name):,}); 0: none")
    given = parser.parse_args()
    usual = QUICK if given.quick else FULL
    amount = Amount(*(getattr(usual if getattr(given, n) is None else given, n) for n in Amount.__slots__))
    sides = {name: peer for name, peer in PEERS.items() if not given.only or name in given.only}
    for peer in sides.values():  # what has to be installed and compiled is, before the load average is taken
        for job in TOPICS:
            peer.command(job)
    words = " ".join(sys.argv[1:])
    command = f"- Command: `make bench-peers{f' ARGS={words!r}' if words else ''}`"
    load = os.getloadavg()[0]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by an exception, so that no child is left
    with LocalBroker(benchmark=True) as broker:
        for section in _sections(amount, sides, Cluster(broker.bootstrap)):
            section.load = load
            section.after = f"{section.after}\n{command}".strip()
            print(f"\n{section.text()}", flush=True)
            if not given.quick and not given.only:
                report.save([section])


def _sections(amount: Amount, sides: Mapping[str, Peer], cluster: Cluster) -> Iterator[report.Section]:
    """What was measured, one after the other, so that an end in the middle loses only what comes later."""
    if amount.numbers:
        yield halves.measure(amount.numbers, sides, cluster)
    if amount.repetitions:
        yield rates.measure(amount.repetitions, amount.messages, sides, cluster)
    if amount.kills:
        yield kills.measure(amount.kills, amount.messages // FOR_A_KILL, sides, cluster)


if __name__ == "__main__":
    main()
