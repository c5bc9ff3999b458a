"""Feed the lines of files into a topic, each one exactly once, and total them.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/mailbox.py``. Run it again:
it goes on behind the last line that was committed. Kill it at any moment: no line is lost, and none comes twice.
"""

from dataclasses import dataclass
from pathlib import Path

from cues_kafka import Feed, Files, Graph, Json, Kafka, Processor, State, Store, Topic, start

INBOX = Path("mailbox")


@dataclass(frozen=True)
class Payment:
    """A line of a file."""

    account: str
    cents: int


def total(payment: Payment, sums: State[int]) -> dict[str, int | str]:
    """The sum of an account, behind each of its payments."""
    sums[payment.account] = sums.get(payment.account, 0) + payment.cents
    return {"account": payment.account, "sum": sums[payment.account]}


graph = Graph(
    "mailbox",
    Feed(Files(INBOX / "*.jsonl"), into="mailbox.payments"),
    Processor(total, inputs="mailbox.payments", outputs="mailbox.sums", state={"sums": Store(Json(int))}),
    topics={"mailbox.payments": Topic(value=Json(Payment), key="account")},
    errors="mailbox.errors",
)

if __name__ == "__main__":
    INBOX.mkdir(exist_ok=True)
    number = len(list(INBOX.iterdir()))
    (INBOX / f"{number:04}.jsonl").write_text('{"account": "a", "cents": 250}\n{"account": "b", "cents": 90}\n')
    with start(graph, Kafka("localhost:9092")) as running:
        running.wait_idle()
        for message in running.messages("mailbox.sums", last=2):
            print(message.value)
