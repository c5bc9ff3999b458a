"""Run two jobs in cues-kafka and in its peers, check and compare: ``python benchmarks/peers/run.py [--quick]``."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks import report
from benchmarks.harness import Cluster, child, cpu_s, median, spread, unique, until
from benchmarks.peers import jobs
from benchmarks.peers.sides import ORDERS, PEERS, PIPE, Peer
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.ports import TopicPartition as Place
from cues_kafka.ports import Watermarks

PARTITIONS = 4
WARM = 0.1
"""Share of the messages that belongs to the start; see benchmarks/throughput.py."""

LOOK_S = 0.02
GIVE_UP_S = 240.0
"""More than all timeouts of a session and a transaction that follow a kill, 45 s and 60 s."""

TOPICS = {ORDERS: ("orders", "counts", "errors"), PIPE: ("values", "copies")}
"""Of each job, its input first."""


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of measuring; `QUICK` only shows that the programs work."""

    repetitions: int
    messages: int
    kills: int


FULL = Size(repetitions=3, messages=200_000, kills=3)
QUICK = Size(repetitions=1, messages=50_000, kills=1)

HOW = f"""The same two jobs in cues-kafka and in three other libraries, one process each, {PARTITIONS} partitions, a
backlog that is there from the beginning, values of 100 bytes. *Pipe*: bytes from one topic to another. *Orders*: read
JSON, refuse what is no order, count the orders of each customer in a store, send each count, and one message for each
order that was refused. The programs are those of [Coming from Kafka Streams, Quix Streams or Faust](coming-from.md),
in [benchmarks/peers/programs](../benchmarks/peers/programs). Outputs of every run are compared with what plain Python
makes of the same messages. Rates are measured as under Throughput, and a ratio is that of the medians. A Java program
also compiles itself in this time, which its CPU shows."""

HOW_KILLED = """The job *orders*, as above. Once between a fifth and three fifths of the messages are committed, the
process gets a SIGKILL, and the same command starts at once. No process has a static name in its group, and all
sessions end after 10 s. When all is committed, a reader with `read_committed` reads both outputs. *Lost*: orders with
neither a count nor an error message. *Doubled*: messages too many. *Wrong*: orders whose count is not that of plain
Python. *Pause*: from the kill until such a reader gets new messages again, in every partition that the
dead process wrote to."""


def main() -> None:
    parser = argparse.ArgumentParser(description="The same jobs in cues-kafka and in its peers, on one broker.")
    parser.add_argument("--quick", action="store_true", help="measure a little, once, and write nothing")
    parser.add_argument("--only", action="append", choices=list(PEERS), help="run these sides only; writes nothing")
    parser.add_argument("--repetitions", type=int, help="runs of each job on each side")
    parser.add_argument("--messages", type=int, help="messages of a run; Faust gets a tenth")
    parser.add_argument("--kills", type=int, help="runs with a kill")
    given = parser.parse_args()
    size = QUICK if given.quick else FULL
    size = Size(
        size.repetitions if given.repetitions is None else given.repetitions,
        size.messages if given.messages is None else given.messages,
        size.kills if given.kills is None else given.kills,
    )
    sides = {name: peer for name, peer in PEERS.items() if not given.only or name in given.only}
    for peer in sides.values():  # before the load average is taken
        for job in TOPICS:
            peer.command(job)
    with LocalBroker(benchmark=True) as broker:
        bench = Bench(Cluster(broker.bootstrap), sides, size)
        sections = [*([bench.rates()] if size.repetitions else []), *([bench.killed()] if size.kills else [])]
    print("\n" + "\n".join(section.text() for section in sections))
    if not given.quick and not given.only:
        report.save(sections)


@dataclass(slots=True)
class Rates:
    """One side's runs of one job."""

    per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    verdict: jobs.Verdict = field(default_factory=jobs.Verdict)


@dataclass(slots=True)
class Kills:
    """One side's runs with a kill; `unfinished` names those that did not end."""

    verdict: jobs.Verdict = field(default_factory=jobs.Verdict)
    pauses: list[float] = field(default_factory=list)
    messages: int = 0
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bench:
    """Both programs of measuring."""

    cluster: Cluster
    sides: dict[str, Peer]
    size: Size

    def rates(self) -> report.Section:
        """Run both jobs on every side, in turn."""
        section = report.Section(
            "Peers",
            f"{HOW} {self.size.messages:,} messages a run, a tenth of them for Faust; medians of "
            f"{self.size.repetitions} (min to max).",
            ("job", "library", "settings", "messages/s", "ratio to ours", "CPU us", "outputs"),
        )
        for job in (PIPE, ORDERS):
            found = {name: Rates() for name in self.sides}
            for turn in range(self.size.repetitions):
                names = list(self.sides)
                for name in names if turn % 2 == 0 else names[::-1]:
                    self._run(name, job, found[name])
            ours = median(found["cues"].per_s) if "cues" in found else 0.0
            for name, rates in found.items():
                ratio = f"{median(rates.per_s) / ours:.2f}" if ours else "-"
                cpu = f"{median(rates.cpu_us):.1f}"
                peer = self.sides[name]
                section.rows.append(
                    [job, peer.title, peer.settings, spread(rates.per_s), ratio, cpu, _said(rates.verdict)]
                )
        return section

    def killed(self) -> report.Section:
        """Kill every side while it runs."""
        head = ("library", "settings", "kills", "messages", "lost", "doubled", "wrong", "pause, s")
        section = report.Section("Peers, killed", HOW_KILLED, head)
        for name, peer in self.sides.items():
            found = Kills()
            for _ in range(self.size.kills):
                self._kill(name, found)
            said = [f"{number:,}" for number in (found.verdict.lost, found.verdict.doubled, found.verdict.wrong)]
            pause = spread(found.pauses, "{:.1f}") if found.pauses else "-"
            section.rows.append([peer.title, peer.settings, str(self.size.kills), f"{found.messages:,}", *said, pause])
            section.after += "".join(f"- {peer.title}: {text}\n" for text in found.unfinished)
        section.after = section.after.rstrip()
        return section

    def _run(self, side: str, job: str, found: Rates) -> None:
        with self._prepared(side, job) as run, self._started(run) as process:
            began: list[float] = []

            def finished() -> bool:
                done = self._done(run)
                if not began and done >= len(run.records) * WARM:
                    began[:] = [time.monotonic(), done, cpu_s(process)]
                return done >= len(run.records)

            until(finished, timeout_s=GIVE_UP_S, every_s=LOOK_S, what=f"all committed by {side}", process=process)
            wall, cpu, moved = time.monotonic() - began[0], cpu_s(process) - began[2], len(run.records) - began[1]
            found.per_s.append(moved / wall)
            found.cpu_us.append(cpu / moved * 1e6)
            verdict = self._verdict(run)
            found.verdict += verdict
        print(f"  {job} {side}: {moved / wall:,.0f}/s, {cpu / moved * 1e6:.1f} us CPU, {_said(verdict)}", flush=True)

    def _kill(self, side: str, found: Kills) -> None:
        with self._prepared(side, ORDERS) as run:
            share = random.uniform(0.2, 0.6)
            with self._started(run) as process:
                until(
                    lambda: self._done(run) >= share * len(run.records),
                    timeout_s=GIVE_UP_S, every_s=LOOK_S / 4, what=f"committed by {side}", process=process,
                )  # fmt: skip
                time.sleep(random.uniform(0, 0.3))  # or else each kill would come right behind a commit
                process.kill()
                process.wait()
                killed = time.monotonic()
            at_death = self._marks(run)
            with self._started(run) as process:
                try:
                    until(
                        lambda: _flows(at_death, self._marks(run)),
                        timeout_s=GIVE_UP_S, every_s=LOOK_S, what="reading again", process=process,
                    )  # fmt: skip
                    pause = time.monotonic() - killed
                    until(
                        lambda: self._done(run) >= len(run.records),
                        timeout_s=GIVE_UP_S, every_s=LOOK_S, what="all committed", process=process,
                    )  # fmt: skip
                except TimeoutError as late:
                    found.unfinished.append(str(late))
                else:
                    found.pauses.append(pause)
                verdict = self._verdict(run)
            found.verdict += verdict
            found.messages += len(run.records)
        print(f"  kill {side} at {share:.0%}: {_said(verdict)}; pause {found.pauses[-1:]} s", flush=True)

    @contextmanager
    def _prepared(self, side: str, job: str) -> Iterator[Run]:
        """Topics with messages for one run, and a folder for its files."""
        count = self.size.messages // 10 if self.sides[side].slow else self.size.messages
        records = jobs.orders(count) if job == ORDERS else jobs.values(count)
        name = unique(f"{side}-{job}-")
        topics = [self.cluster.create(f"{name}.{topic}", PARTITIONS) for topic in TOPICS[job]]
        self.cluster.send(topics[0], records)
        with tempfile.TemporaryDirectory(prefix="peers-") as files:
            yield Run(self.sides[side], job, name, records, topics, files)
        self.cluster.delete(*topics)

    @contextmanager
    def _started(self, run: Run) -> Iterator[psutil.Popen]:
        """The program of one run, which is stopped at the end."""
        names = {"NAME": run.name, "BROKER": self.cluster.bootstrap, "STATE": run.files}
        ours = {"CUES_KAFKA_STATE_DIR": run.files, "CUES_KAFKA_BOOTSTRAP": self.cluster.bootstrap}
        with child(run.peer.command(run.job), {**os.environ, **ours, **names}) as process:
            yield process

    def _done(self, run: Run) -> int:
        return self.cluster.committed(run.peer.group(run.name, run.job), run.topics[0], PARTITIONS)

    def _marks(self, run: Run) -> dict[Place, Watermarks]:
        return dict(self.cluster.broker.watermarks([Place(t, p) for t in run.topics[1:2] for p in range(PARTITIONS)]))

    def _verdict(self, run: Run) -> jobs.Verdict:
        """Compare all that a reader gets, after the last transaction has ended, with what plain Python makes."""
        outputs = [self._read(topic) for topic in run.topics[1:]]
        if run.job == PIPE:
            return jobs.compared(run.records, outputs[0])
        counts, errors = ([value for _, value in records] for records in outputs)
        return jobs.judged(jobs.by_hand(run.records), counts, map(run.peer.refused, errors))

    def _read(self, topic: str) -> list[jobs.Record]:
        places = [Place(topic, p) for p in range(PARTITIONS)]
        until(
            lambda: all(m.stable == m.high for m in self.cluster.broker.watermarks(places).values()),
            timeout_s=GIVE_UP_S, every_s=LOOK_S, what=f"no open transaction in {topic}",
        )  # fmt: skip
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": unique("read"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        found: list[jobs.Record] = []
        ends = 0
        while ends < PARTITIONS:
            for message in consumer.consume(10_000, 0.2):
                if (error := message.error()) is None:
                    found.append((message.key(), message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client names it so
                    ends += 1
                else:
                    raise RuntimeError(error)
        consumer.close()
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job on one side: its input comes first among `topics`."""

    peer: Peer
    job: str
    name: str
    records: Sequence[jobs.Record]
    topics: Sequence[str]
    files: str


def _flows(at_death: dict[Place, Watermarks], now: dict[Place, Watermarks]) -> bool:
    """Whether readers are past all that the dead process wrote, and there is more than markers."""
    past = all(now[place].stable >= then.high for place, then in at_death.items())
    more = sum(now[place].stable - then.high for place, then in at_death.items())
    return past and more > 10 * PARTITIONS


def _said(verdict: jobs.Verdict) -> str:
    if verdict.right:
        return "all right"
    words = {"lost": verdict.lost, "doubled": verdict.doubled, "wrong": verdict.wrong, "strange": verdict.strange}
    return "**" + ", ".join(f"{number:,} {word}" for word, number in words.items() if number) + "**"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
