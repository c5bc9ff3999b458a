"""The server of a view of many tasks, in a process of its own: all of them change once a second.

Prints its address. For each line that it reads it prints the processor seconds that it has taken, and the number of
looks; it ends when there are no more lines.
"""

from __future__ import annotations

import sys
import time

from cues_kafka.operate.look.seen import GraphStatus
from cues_kafka.ui.folding import folded
from cues_kafka.ui.layout import picture
from cues_kafka.ui.poller import Poller
from cues_kafka.ui.server import Address, ViewServer
from tests.browser.shown import chain, status, task

PROCESSORS, PARTITIONS = 20, 25


def main() -> None:
    """Serve until the input ends."""
    looks = 0

    def look() -> GraphStatus:
        nonlocal looks
        looks += 1
        tasks = (
            task(
                f"step{number}",
                partition,
                lag=looks * 7 + partition,
                rate=looks / 3,
                waiting_s=looks / 10,
                errors=looks,
            )
            for number in range(PROCESSORS)
            for partition in range(PARTITIONS)
        )
        return status(*tasks, at_s=time.time())

    drawn = picture(chain(PROCESSORS))
    poller = Poller(drawn, look, str, every_s=1.0)
    questions = {
        "/api/graph": lambda given: folded(drawn, given.get("fold", "").split(",")),
        "/api/history": lambda given: poller.history.of(given.get("task", "")),
    }
    server = ViewServer(Address(), poller.newest, questions)
    poller.start()
    server.start()
    print(server.url, flush=True)
    for _ in sys.stdin:
        print(time.process_time(), looks, flush=True)
    poller.close()
    server.close()


if __name__ == "__main__":
    main()
