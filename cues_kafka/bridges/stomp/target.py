"""Messages to a JMS broker, exactly once (E1): what `Stomp(...).target()`, `.to_queue()` and `.to_topic()` declare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from cues_kafka.bridges.destinations import BrokerDestination, BrokerTarget, MakesMessages
from cues_kafka.bridges.marker import Connect
from cues_kafka.bridges.stomp.client import StompLogin
from cues_kafka.bridges.stomp.marker import StompMarkers
from cues_kafka.bridges.stomp.messages import header_of, message_of
from cues_kafka.errors import GraphError
from cues_kafka.graph.levels import STOMP, EdgeKind


class JmsBroker(Protocol):
    """What a target needs of `Stomp`: where the broker is, and how patient clients are."""

    @property
    def env(self) -> str: ...
    @property
    def heart_beat_s(self) -> float: ...
    def login(self) -> StompLogin: ...


@dataclass(frozen=True)
class StompTarget(BrokerTarget):
    """A JMS broker that a processor writes to, exactly once; see `BrokerTarget`, `Stomp.target` and docs/stomp.md."""

    level: ClassVar[str] = STOMP.level
    rests_on: ClassVar[str] = STOMP.why
    message: ClassVar[MakesMessages] = message_of
    header: ClassVar[Callable[[Any, Any], Any]] = header_of

    broker: JmsBroker
    markers: str = "cues"

    def __post_init__(self) -> None:
        self.check_markers()
        if not self.broker.heart_beat_s:
            raise GraphError(
                "Stomp(heart_beat_s=0): without heart-beats the broker keeps the marker of a process that is frozen or "
                "cut off. Give it seconds to write to the broker."
            )

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]  # as that of its base
        return STOMP

    def connector(self) -> Connect:
        return partial(StompMarkers, self.broker.login())


@dataclass(frozen=True)
class StompDestination(BrokerDestination):
    """A queue or a topic of a broker; see `Stomp.to_queue` and `Stomp.to_topic`."""

    target: StompTarget
