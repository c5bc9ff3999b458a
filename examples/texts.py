"""Send a text message for each order, and never two: at-most-once, with the gateway's own books beside Kafka's.

Start a broker with ``cues-kafka broker up``, then run this file with ``python examples/texts.py``. Kill it at any time
and run it again: no line of the gateway's file comes twice, and ``verify`` counts what a kill has dropped.
"""

from dataclasses import dataclass
from pathlib import Path

from cues_kafka import CommitPolicy, Graph, Json, Kafka, Processor, Source, Topic, start

SENT = Path("texts-sent.txt")


@dataclass(frozen=True)
class Text:
    """An input and output message."""

    phone: str
    words: str


class Gateway:
    """Sends text messages, and knows no idempotency key. Here they are lines of a file."""

    def send(self, text: Text) -> None:
        if not text.phone.startswith("+"):
            raise ValueError(f"no phone number: {text.phone}")
        with SENT.open("a", encoding="utf-8") as lines:
            lines.write(f"{text.phone}: {text.words}\n")


def notify(text: Text, gateway: Gateway) -> Text:
    """Whatever happens here, this is not called again for the message."""
    gateway.send(text)
    return text


graph = Graph(
    "texts",
    Source("texts.wanted"),
    Processor(
        notify,
        inputs="texts.wanted",
        outputs="texts.sent",
        strategy="at-most-once",
        commit=CommitPolicy(max_messages=10),  # a kill drops ten at most
    ),
    errors="texts.failed",
    system={"gateway": Gateway},
    defaults=Topic(value=Json(Text), partitions=2),
)

if __name__ == "__main__":
    with start(graph, Kafka("localhost:9092")) as running:
        running.send_many("texts.wanted", [Text(one, "your order is on its way") for one in ("+49-1", "+49-2", "none")])
        running.wait_idle(timeout_s=30)
        print(*sorted(SENT.read_text().splitlines()), sep="\n")
        print(running.status().tasks[0].totals.dropped, "dropped")
