"""``python -m examples.orders_jms``: send, kill, compare; the exit code is 1 if anything differs."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psycopg
from rich.console import Console

from cues_kafka import Kafka, connect
from cues_kafka.brokers.local import LocalBroker
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli.supervise import worker_command
from cues_kafka.ports.broker import Broker
from cues_kafka.task.making.prepare import prepare
from cues_kafka.verify.scan import verify
from cues_kafka.workers.supervisor import Supervisor
from examples.flights.progress import Progress
from examples.orders_jms.graph import BROKER, DATABASE, TABLES, graph
from examples.orders_jms.shop import ARTICLES, MISSING, STOCK, Shop, orders, shipped, stock
from tests.servers.activemq import ActiveMq
from tests.servers.artemis import Artemis
from tests.servers.postgres import Postgres
from tests.servers.server import Server

ROOT = Path(__file__).parents[2]

STALLED_S = 120.0
"""The run fails after this time without news."""

DOWN_S = (0.2, 1.5)
"""How long a killed server is down: between these, in seconds."""

VICTIMS = ("worker", "broker", "worker", "database")
"""What is killed, in turns."""

Jms: TypeAlias = ActiveMq | Artemis

JMS: dict[str, type[Jms]] = {"activemq": ActiveMq, "artemis": Artemis}


def main(arguments: list[str] | None = None) -> int:
    """Run the demo, and return its exit code."""
    args = _parser().parse_args(arguments)
    console = Console()
    args.seed = args.seed if args.seed is not None else random.randrange(2**32)
    began = time.monotonic()
    with (
        LocalBroker(say=lambda text: console.print(text, markup=False)) as kafka,
        JMS[args.broker]() as jms,
        Postgres(durable=True) as postgres,
    ):
        os.environ |= {BROKER: jms.url(), DATABASE: postgres.url()}
        console.print(
            f"{args.orders:,} orders by {jms.kind} into {postgres.kind}, {args.kills} kills, seed {args.seed}",
            highlight=False,
        )
        differences = Run(kafka, jms, postgres, args, console).run()
    for difference in differences:
        console.print(f"[red]unequal[/]: {difference}", highlight=False)
    verdict = "[red]NOT exactly once" if differences else "[green]every order exactly once"
    console.print(f"{verdict}[/] ({time.monotonic() - began:.0f} s in all)")
    return 1 if differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.orders_jms",
        description="Send orders by JMS through Kafka into PostgreSQL and back to JMS, kill processes, compare all.",
    )
    parser.add_argument(
        "--kills", type=int, default=10, help="number of SIGKILLs: of workers, the JMS broker and PostgreSQL (10)"
    )
    parser.add_argument("--orders", type=int, default=5_000, help="number of orders (5000)")
    parser.add_argument("--rate", type=float, default=300.0, help="orders sent in a second at most (300)")
    parser.add_argument("--broker", choices=list(JMS), default="activemq", help="the JMS broker (activemq)")
    parser.add_argument("--seed", type=int, help="seed of the orders, and of the kills")
    return parser


class Run:
    """One run: send, kill, wait, compare."""

    def __init__(
        self,
        kafka: LocalBroker,
        jms: ActiveMq | Artemis,
        postgres: Postgres,
        args: argparse.Namespace,
        console: Console,
    ) -> None:
        self._kafka = Kafka(kafka.bootstrap)
        self._directory = kafka.directory
        self._jms, self._postgres = jms, postgres
        self._args, self._console = args, console
        self._given = orders(args.orders, args.seed)
        self._draw = random.Random(args.seed)
        self._shop = Shop(jms.url(), self._given, args.rate)

    def run(self) -> list[str]:
        """Run, and give what differs."""
        self._create_tables()
        with closing(open_broker(self._kafka)) as broker:
            prepare(graph, broker)
            with Progress(graph, broker) as progress:
                return self._run(broker, progress)

    def _run(self, broker: Broker, progress: Progress) -> list[str]:
        def idle() -> bool:
            return not progress.poll(0.2) and not progress.behind()

        log = self._directory / "workers.log"
        try:
            with log.open("ab") as output, self._supervisor(output) as workers:
                self._shop.start()
                self._kill(workers)
                self._wait(lambda: not self._shop.is_alive(), "the shop did not end")
                if self._shop.error is not None:
                    raise TimeoutError(f"the shop failed: {self._shop.error}")
                self._wait(self._all_in_kafka, "orders are missing in Kafka")
                self._wait(idle, "messages wait")
        except TimeoutError as error:
            self._console.print(log.read_text(errors="replace")[-4_000:], markup=False, highlight=False)
            return [*self._compared(broker), str(error)]
        self._console.print(
            f"{len(self._shop.doubtful)} orders were sent again after a kill, because the broker's receipt was lost",
            highlight=False,
        )
        return self._compared(broker)

    def _create_tables(self) -> None:
        with psycopg.connect(self._postgres.url()) as connection:
            connection.execute(TABLES)
            for article in ARTICLES:
                connection.execute("INSERT INTO article VALUES (%s, %s)", (article, STOCK))

    def _supervisor(self, output: Any) -> Supervisor:
        def command(k: int) -> list[str]:
            options = ["--bootstrap", self._kafka.bootstrap]
            return worker_command("examples.orders_jms.graph:graph", instance=f"orders.{k}", options=options)

        return Supervisor(
            command, workers=2, env={**os.environ, "TMPDIR": str(self._directory)}, cwd=ROOT, output=output,
            healthy_after_s=1.0,
        )  # fmt: skip

    def _kill(self, workers: Supervisor) -> None:
        """Kill a process each time when a share of the orders is sent."""
        for nth in range(self._args.kills):
            due = len(self._given) * (nth + 1) // (self._args.kills + 1)
            self._wait(
                lambda due=due: len(self._shop.confirmed) >= due or not self._shop.is_alive(),  # type: ignore[misc]
                "the shop does not go on",
            )
            time.sleep(self._draw.uniform(0, 0.05))
            sent = len(self._shop.confirmed)
            match VICTIMS[nth % len(VICTIMS)]:
                case "worker":
                    k = self._draw.choice(list(workers.pids) or [1])
                    victim = f"worker {k}, process {workers.signal(k, signal.SIGKILL)}"
                case "broker":
                    victim = self._restarted(self._jms)
                case _:
                    victim = self._restarted(self._postgres)
            self._console.print(f"kill {nth + 1}: {victim}, after {sent:,} orders", highlight=False)

    def _restarted(self, server: Server) -> str:
        """Kill a server, and start it again after a while."""
        server.kill()
        time.sleep(self._draw.uniform(*DOWN_S))
        server.start()
        return f"{server.kind}, which is down for a while"

    def _all_in_kafka(self) -> bool:
        return set(self._shop.confirmed) <= {one.sending for one in self._arrived()}

    def _arrived(self) -> list[Arrived]:
        """The orders in Kafka."""
        with connect(self._kafka, graph) as client:
            found = client.messages("orders")
            return [Arrived(str(dict(one.headers)["sending"] or b"", "ascii"), one.value.id) for one in found]

    def _compared(self, broker: Broker) -> list[str]:
        """What differs from the computation in one pass."""
        arrived = self._arrived()
        valid = [one for one in self._given if one.article != MISSING]
        booked = [asdict(one) for one in valid]
        refused = {one.id for one in self._given if one.article == MISSING}
        with psycopg.connect(self._postgres.url()) as connection:
            sales = connection.execute("SELECT id, article, pieces FROM sale").fetchall()
            left = connection.execute("SELECT name, stock FROM article").fetchall()
        with connect(self._kafka, graph) as client:
            in_kafka = [one.value for one in client.messages("booked")]
            errors = [*client.messages("orders.errors")]
        sendings = [one.sending for one in arrived if one.sending not in self._shop.doubtful]
        unsure = Counter(one.sending for one in arrived if one.sending in self._shop.doubtful)
        found = [
            *differences("confirmed orders in Kafka", list(self._shop.confirmed), sendings),
            *(f"an order in Kafka twice: {sending}" for sending, count in unsure.items() if count > 1),
            *differences("rows of sales", [tuple(asdict(one).values()) for one in valid], sales),
            *differences("rows of articles", stock(self._given).items(), left),
            *differences("booked orders in Kafka", map(_text, booked), map(_text, in_kafka)),
            *differences("orders in the warehouse", map(_text, booked), map(_text, shipped(self._jms.url()))),
        ]
        if len(errors) != (wanted := sum(one.order in refused for one in arrived)):
            found.append(f"error messages: {wanted} expected, {len(errors)} found")
        report = verify(graph, broker)
        return found if report.ok else [*found, *report.lines]

    def _wait(self, there: Callable[[], bool], why: str) -> None:
        until = time.monotonic() + STALLED_S
        while not there():
            if time.monotonic() > until:
                raise TimeoutError(why)
            time.sleep(0.1)


class Arrived(NamedTuple):
    """A message in the topic of orders."""

    sending: str
    order: str


def _text(order: dict[str, Any]) -> str:
    return f"{order['id']}, {order['pieces']} of {order['article']}"


def differences(what: str, expected: Iterable[Any], found: Iterable[Any]) -> list[str]:
    """What is missing, and what is too many."""
    one, other = Counter(expected), Counter(found)
    said = [f"{what}: missing {lost}" for lost in (one - other)][:5]
    return said + [f"{what}: too many {more}" for more in (other - one)][:5]


if __name__ == "__main__":
    sys.exit(main())
