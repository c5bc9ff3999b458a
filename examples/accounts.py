"""Accounts from events: the events are the truth, and a store has what they add up to.

A store is the checkpoint: a worker that takes over reads the balances, not all events since the beginning. A rule that
comes later is a new processor. It reads the same events from their beginning, and has a store of its own.
Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/accounts.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from cues_kafka import Graph, Json, Kafka, Processor, Source, State, Store, Topic, connect, start


@dataclass(frozen=True)
class Event:
    """What was paid into an account; below 0: paid out of it."""

    account: str
    cents: int


def apply(event: Event, accounts: State[int]) -> None:
    """Bring a balance up to date; an event that overdraws it becomes an error message, and changes nothing."""
    balance = accounts.get(event.account, 0)
    if balance + event.cents < 0:
        raise ValueError(f"account {event.account!r} has only {balance} cents")
    accounts[event.account] = balance + event.cents


def highest(event: Event, highs: State[int]) -> None:
    """Keep the highest sum that was paid in at once: a rule that came later."""
    if event.cents > 0:
        highs[event.account] = max(event.cents, highs.get(event.account, 0))


ACCOUNTS = Processor(apply, name="accounts", inputs="bank.events", state={"accounts": Store(Json(int))})
HIGHEST = Processor(highest, inputs="bank.events", state={"highs": Store(Json(int))})
TOPICS = {"bank.events": Topic(value=Json(Event), key="account", partitions=2)}

graph = Graph("bank", Source("bank.events"), ACCOUNTS, topics=TOPICS, errors="bank.errors")
later = Graph("bank", Source("bank.events"), ACCOUNTS, HIGHEST, topics=TOPICS, errors="bank.errors")

EVENTS = [Event("ann", 500), Event("ann", -700), Event("bob", 300), Event("ann", -200)]

if __name__ == "__main__":
    cluster = Kafka("localhost:9092")
    with start(graph, cluster), connect(cluster, graph) as client:
        accounts = client.table("accounts", "accounts")
        for event in EVENTS:
            accounts.wait_for(client.send("bank.events", event))  # each caller reads its own writes
        print(*accounts.scan(), sep="\n")
        for error in client.messages("bank.errors"):
            print("refused:", error.value.text)
    with start(later, cluster) as running:  # the new processor replays the events
        running.wait_idle()
        print(running.query("highest", "highs", "ann").value)
