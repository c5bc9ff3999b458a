"""A real Apache Kafka on this machine, for demos, tests and first steps: no Docker, no installation.

::

    with LocalBroker() as broker:  # or LocalBroker(3): three nodes
        print(broker.bootstrap)

How it works, from the outside in:

1. `broker` has the class that users hold. It finds Java (`java`) and the broker's jars (`jars`), keeps formatted data
   directories and a class archive in the cache (`prepare`), writes each node's properties (`properties`), and waits
   until every node answers and sees all others (`probe`).
2. The JVMs are children of a small process, the `guard`, not of the program that uses them. The guard kills them and
   removes their directory when that program ends, however it ends.
3. `detached` keeps a guard running: one broker for each user and name, for ``cues-kafka broker up``.

It needs a POSIX system. Everything listens on 127.0.0.1.
"""

from __future__ import annotations

from cues_kafka.brokers.local.broker import LocalBroker, Node

__all__ = ["LocalBroker", "Node"]
