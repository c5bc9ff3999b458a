"""Messages to an AMQP 1.0 broker, exactly once (E1): what `Amqp(...).target()`, `.to_queue()` and `.to_topic()` are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from cues_kafka.bridges.amqp.messages import header_of, message_of
from cues_kafka.bridges.destinations import BrokerDestination, BrokerTarget, MakesMessages
from cues_kafka.extras import PROTON, Package
from cues_kafka.graph.levels import AMQP, EdgeKind

if TYPE_CHECKING:
    from cues_kafka.bridges.amqp.engine import AmqpLogin
    from cues_kafka.bridges.marker import Connect


class AmqpBroker(Protocol):
    """What a target needs of `Amqp`: where the broker is."""

    @property
    def env(self) -> str: ...
    def login(self) -> AmqpLogin: ...


@dataclass(frozen=True)
class AmqpTarget(BrokerTarget):
    """A broker that a processor writes to, exactly once; see `BrokerTarget`, `Amqp.target` and docs/amqp.md."""

    level: ClassVar[str] = AMQP.level
    rests_on: ClassVar[str] = AMQP.why
    message: ClassVar[MakesMessages] = message_of
    header: ClassVar[Callable[[Any, Any], Any]] = header_of

    broker: AmqpBroker
    markers: str = "cues"

    def __post_init__(self) -> None:
        self.check_markers()

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as that of its base
        return AMQP

    def packages(self) -> tuple[Package, ...]:
        return (PROTON,)

    def connector(self) -> Connect:
        login = self.broker.login()
        from cues_kafka.bridges.amqp.session import AmqpMarkers  # noqa: PLC0415 - needs an extra

        return lambda: AmqpMarkers(login)


@dataclass(frozen=True)
class AmqpDestination(BrokerDestination):
    """A queue or a topic of a broker; see `Amqp.to_queue` and `Amqp.to_topic`."""

    target: AmqpTarget
