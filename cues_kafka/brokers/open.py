"""Opens the broker of a value that names a cluster."""

from __future__ import annotations

import threading

from cues_kafka.brokers.options import Kafka, Memory, Options
from cues_kafka.errors import ConfigError
from cues_kafka.ports.broker import Broker

_opening = threading.Lock()  # guards `Memory.held`: two threads that open the same value get one broker


def open_broker(options: Options) -> Broker:
    """
    Open the broker that `options` names; its module is imported here and not before.

    A `Kafka` value gives a new broker object each time. A `Memory` value always gives its own one: all its
    users see the same logs.

    Raises:
        ConfigError: `options` is neither.
    """
    match options:
        case Kafka():
            from cues_kafka.brokers.kafka import KafkaBroker  # noqa: PLC0415 - loads the client library

            return KafkaBroker(options)
        case Memory():
            from cues_kafka.brokers.memory import MemoryBroker  # noqa: PLC0415 - the layer loads what is asked for

            with _opening:
                if not options.held:
                    options.held.append(MemoryBroker(clock=options.clock, seed=options.seed, brokers=options.brokers))
                return options.held[0]
        case _:
            raise ConfigError(f"{options!r} is not a cluster; give Kafka('host:port') or Memory()")
