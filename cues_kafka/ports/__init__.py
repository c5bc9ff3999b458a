"""The ports: protocols for the outside world, and the frozen facts that they exchange.

There is a file for each kind of port. They have plain data and signatures, and import the standard library only.
`brokers/memory` and `brokers/kafka` implement those of a cluster and pass one contract suite (tests/contract).
The names here are public.
"""

from __future__ import annotations

from cues_kafka.ports.observer import BatchReport, Observer, PartFacts, RunFacts, RunObserver

__all__ = ["BatchReport", "Observer", "PartFacts", "RunFacts", "RunObserver"]
