"""What stays of a message whose function fails in the middle, where each side is told to go on with the next one."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import Cluster
from benchmarks.peers.jobs import EACH_FAILS
from benchmarks.peers.runs import prepared
from benchmarks.peers.sides import FORK, Peer
from benchmarks.report import Section

HOW = f"""A function counts the message in a store, sends to a first topic, fails at every {EACH_FAILS}th message, and
sends the count to a second topic. Each library is configured to go on with the next message: cues-kafka by an errors
topic, Kafka Streams by `LogAndContinueProcessingExceptionHandler` and a dead letter queue, Quix Streams by
`on_processing_error`; Faust has no setting for it. *Half*: committed messages of the first topic whose message failed.
*Counted*: failed messages that the store counts all the same. *Told*: error messages. *Missing*: messages that did not
fail, and are not in both topics."""

STANDS_S = 60.0
"""A side that has not delivered a thousand messages by then hangs."""


def measure(messages: int, sides: Mapping[str, Peer], cluster: Cluster) -> Section:
    """Run the job once on every side."""
    section = Section(
        "Peers, failing",
        HOW,
        ("library", "messages", "failed", "half", "counted", "told", "missing"),
    )
    for peer in sides.values():
        with prepared(cluster, peer, FORK, messages) as run:
            stopped = None
            with run.started() as process:
                try:
                    run.finish(process, timeout_s=STANDS_S)
                except TimeoutError:
                    stopped = f"{peer.title} hung at {run.done():,} of {len(run.records):,} messages"
            first, second, errors = ([value for _, value in records] for records in run.outputs())
        failed = sum(fails(value) for _, value in run.records)
        half, worked = sum(map(fails, first)), len(run.records) - failed
        if stopped:
            section.after = f"{section.after}\n- {stopped}, until the run ended it after {STANDS_S:.0f} s.".strip()
            rest = ["-"] * 3
        else:
            counted = max(map(int, second), default=0) - worked
            rest = [str(counted), str(len(errors)), str(2 * worked - len(second) - (len(first) - half))]
        section.rows.append([peer.title, f"{len(run.records):,}", str(failed), str(half), *rest])
        print(f"  fork {' | '.join(section.rows[-1])}", flush=True)
    return section


def fails(number: bytes) -> bool:
    """Whether the function fails at this message."""
    return int(number) % EACH_FAILS == 0
