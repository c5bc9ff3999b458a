"""A real Apache Kafka on this machine, for demos, tests and first steps: no Docker, no installation.

::

    with LocalBroker() as broker:  # or LocalBroker(3): three nodes
        print(broker.bootstrap)

How it works, from the outside in:

1. `broker` is what users hold: it looks for Java (`java`) and the broker's jars (`jars`), keeps formatted data
   directories and a class archive in the cache (`prepare`), writes each node's properties (`properties`), and waits
   until every node answers and sees all others (`probe`).
2. The JVMs are not children of the program that uses them, but of a small process, the `guard`. It kills them and
   removes their directory when that program ends, however it ends.
3. `detached` leaves a guard running on purpose: one broker per user and name, for ``cues-kafka broker up``.

It needs a POSIX system. Everything listens on 127.0.0.1.
"""

from __future__ import annotations

from cues_kafka.brokers.local.broker import LocalBroker, Node

__all__ = ["LocalBroker", "Node"]
