"""What a SIGKILL in the middle of a run loses, doubles and holds up, on each side."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.harness import Cluster, spread, until
from benchmarks.peers import jobs
from benchmarks.peers.runs import GIVE_UP_S, LOOK_S, USUAL, Run, prepared
from benchmarks.peers.sides import ORDERS, Peer
from benchmarks.report import Section
from cues_kafka.ports.facts import Watermarks
from cues_kafka.ports.log import TopicPartition

HOW = """The job *orders* of [Peers](#peers). When between a fifth and three fifths of the messages are committed, the
process gets a SIGKILL, up to 0.1 s later, and the same command starts at once. No process has a static name in its
group, and all sessions end after 10 s, so about 10 s of each pause are the wait for the dead member. When all messages
are committed, a reader with `read_committed` reads both outputs. *Lost*: orders with neither a count nor an error
message. *Doubled*: messages too many. *Wrong*: orders whose count is not that of plain Python. *Pause*: from the kill
until such a reader gets new messages again, from each partition that the dead process wrote to."""

FIRST, LAST = 0.2, 0.6
"""Between these shares of the messages a process is killed."""

LATER_S = 0.1
"""Without this, each kill would come right behind a commit, which is what the program can see."""

SOME = 10 * USUAL.partitions
"""Messages beyond those of the dead process that show that new ones come; markers alone are fewer."""


@dataclass(slots=True)
class Kills:
    """One side's runs; `unfinished` says what did not end."""

    verdict: jobs.Verdict = field(default_factory=jobs.Verdict)
    pauses: list[float] = field(default_factory=list)
    messages: int = 0
    unfinished: list[str] = field(default_factory=list)


def measure(kills: int, messages: int, sides: Mapping[str, Peer], cluster: Cluster) -> Section:
    """Kill every side as often as `kills` says, each time in a run of its own."""
    section = Section(
        "Peers, killed",
        HOW,
        ("library", "setting", "kills", "messages", "lost", "doubled", "wrong", "pause, s"),
    )
    for peer in sides.values():
        found = Kills()
        for _ in range(kills):
            _kill(peer, messages, found, cluster)
        numbers = (found.messages, found.verdict.lost, found.verdict.doubled, found.verdict.wrong)
        pause = spread(found.pauses, "{:.1f}") if found.pauses else "-"
        section.rows.append([peer.title, peer.guarantee, str(kills), *(f"{number:,}" for number in numbers), pause])
        section.after += "".join(f"- {peer.title}: {text}.\n" for text in found.unfinished)
    section.after = section.after.rstrip()
    return section


def _kill(peer: Peer, messages: int, found: Kills, cluster: Cluster) -> None:
    with prepared(cluster, peer, ORDERS, messages) as run:
        share = random.uniform(FIRST, LAST)
        with run.started() as process:
            until(
                lambda: run.done() >= share * len(run.records),
                timeout_s=GIVE_UP_S, every_s=LOOK_S, what=f"{share:.0%} committed by {peer.title}", process=process,
            )  # fmt: skip
            time.sleep(random.uniform(0, LATER_S))
            process.kill()
            process.wait()
            killed = time.monotonic()
        if run.done() >= len(run.records):
            raise RuntimeError(f"{peer.title} had delivered all messages before the kill. Give more: --messages")
        pause = _go_on(run, killed, found)
        verdict = run.verdict()
        found.verdict += verdict
        found.messages += len(run.records)
    print(f"  {peer.short} killed at {share:.0%}: {verdict.said()}; pause {pause} s", flush=True)


def _go_on(run: Run, killed: float, found: Kills) -> str:
    """Start the command again, and wait until all is committed; returns the pause."""
    then = run.marks(run.topics[1])
    with run.started() as process:
        try:
            until(
                lambda: _flows(then, run.marks(run.topics[1])),
                timeout_s=GIVE_UP_S, every_s=LOOK_S, what="new messages after a kill", process=process,
            )  # fmt: skip
            pause = time.monotonic() - killed
            run.finish(process)
        except TimeoutError as late:
            found.unfinished.append(str(late))
            return "-"
    found.pauses.append(pause)
    return f"{pause:.1f}"


def _flows(then: Mapping[TopicPartition, Watermarks], now: Mapping[TopicPartition, Watermarks]) -> bool:
    """Whether readers are past all that the dead process wrote, and get more."""
    past = all(now[place].stable >= mark.high for place, mark in then.items())
    return past and sum(now[place].stable - mark.high for place, mark in then.items()) > SOME
