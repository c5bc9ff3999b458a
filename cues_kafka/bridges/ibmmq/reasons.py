"""What each reason code of IBM MQ means for a task: wait and ask again, stop with a remedy, or refuse one message."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from cues_kafka.errors import OutputError, RecoveryError, RetriableError

OK: Final = 0
WARNING: Final = 1
FAILED: Final = 2
"""Completion codes."""

BACKED_OUT: Final = 2003
CONNECTION_BROKEN: Final = 2009
HCONN_ERROR: Final = 2018
SYNCPOINT_LIMIT_REACHED: Final = 2024
NO_MSG_AVAILABLE: Final = 2033
OBJECT_IN_USE: Final = 2042
TRUNCATED_MSG_FAILED: Final = 2080
UNKNOWN_OBJECT_NAME: Final = 2085
CONVERTED_MSG_TOO_BIG: Final = 2120
Q_MGR_STOPPING: Final = 2162
CONNECTION_STOPPING: Final = 2203

NO_CONNECTION: Final = frozenset({CONNECTION_BROKEN, HCONN_ERROR, Q_MGR_STOPPING, CONNECTION_STOPPING})
"""Reasons behind which there is no connection: the queue manager has taken back, or takes back, its unit of work."""

_OF_A_QUEUE: Final = frozenset({2035, 2082, UNKNOWN_OBJECT_NAME, 2087})
"""Reasons why a message cannot be sent to a queue, and could be to another one."""

Kind: TypeAlias = Literal["lost", "waits", "stops", "refused"]
"""
What a task does: connect again; the same, and a person may help; stop until a person helps; refuse the message.

A task that stops is tried again by itself, too.
"""


class Reason(NamedTuple):
    """
    What a reason code means here.

    Attributes:
        name: in IBM's manual, without `MQRC_`.
        kind: what a task does.
        remedy: what a person does; empty: nothing.
    """

    name: str
    kind: Kind
    remedy: str = ""


_LIMIT: Final = (
    "raise MAXUMSGS of the queue manager (ALTER QMGR MAXUMSGS(10000)), or take fewer messages together: "
    "queue(prefetch=...) of a feed, CommitPolicy(max_messages=...) of a processor"
)
_SIZE: Final = "send less in one message, or raise MAXMSGL of the queue, the channel and the queue manager"
_TLS: Final = (
    "correct cipher=, key_repository= and key_label= of IbmMq(...), or SSLCIPH and SSLCAUTH of the channel; the task "
    "is retried"
)
_CHANNEL: Final = "name a channel of type SVRCONN that is there and may be used; the task is retried"

REASONS: Final = {
    BACKED_OUT: Reason("BACKED_OUT", "lost"),
    CONNECTION_BROKEN: Reason("CONNECTION_BROKEN", "lost"),
    2016: Reason("GET_INHIBITED", "waits", "allow it: ALTER QLOCAL(...) GET(ENABLED)"),
    HCONN_ERROR: Reason("HCONN_ERROR", "lost"),
    2019: Reason("HOBJ_ERROR", "lost"),
    SYNCPOINT_LIMIT_REACHED: Reason("SYNCPOINT_LIMIT_REACHED", "stops", _LIMIT),
    2025: Reason("MAX_CONNS_LIMIT_REACHED", "waits", "raise MAXINST and MAXINSTC of the channel, or end other clients"),
    2030: Reason("MSG_TOO_BIG_FOR_Q", "refused", _SIZE),
    2031: Reason("MSG_TOO_BIG_FOR_Q_MGR", "refused", _SIZE),
    2035: Reason(
        "NOT_AUTHORIZED",
        "stops",
        "correct user and password in the address, or give the user the rights: +connect on the queue manager, +get "
        "or +put on the queue, and +get, +browse and +put on queues of markers; the task is retried",
    ),
    OBJECT_IN_USE: Reason(
        "OBJECT_IN_USE",
        "waits",
        "end the other program that has the queue open, or wait: a former process of this task loses it with its "
        "connection. DISPLAY QSTATUS(...) TYPE(HANDLE) ALL says who it is",
    ),
    2051: Reason("PUT_INHIBITED", "waits", "allow it: ALTER QLOCAL(...) PUT(ENABLED)"),
    2052: Reason("Q_DELETED", "stops", "define the queue; the task is retried"),
    2053: Reason("Q_FULL", "waits", "let its readers catch up, or raise MAXDEPTH of the queue"),
    2056: Reason("Q_SPACE_NOT_AVAILABLE", "waits", "give the disk of the queue manager more room"),
    2058: Reason(
        "Q_MGR_NAME_ERROR", "stops", "name the queue manager that listens at this address; the task is retried"
    ),
    2059: Reason("Q_MGR_NOT_AVAILABLE", "lost"),
    2063: Reason("SECURITY_ERROR", "stops", "correct user and password in the address; the task is retried"),
    2071: Reason("STORAGE_NOT_AVAILABLE", "waits", "give the queue manager more memory"),
    2082: Reason("UNKNOWN_ALIAS_BASE_Q", "stops", "define the queue that the alias names; the task is retried"),
    UNKNOWN_OBJECT_NAME: Reason("UNKNOWN_OBJECT_NAME", "stops", "define the queue; the task is retried"),
    2087: Reason("UNKNOWN_REMOTE_Q_MGR", "stops", "define the way to that queue manager; the task is retried"),
    2101: Reason("OBJECT_DAMAGED", "stops", "recover the queue from a media image; the task is retried"),
    2102: Reason("RESOURCE_PROBLEM", "waits", "look into the error log of the queue manager"),
    2161: Reason("Q_MGR_QUIESCING", "lost"),
    Q_MGR_STOPPING: Reason("Q_MGR_STOPPING", "lost"),
    2192: Reason("STORAGE_MEDIUM_FULL", "waits", "give the disk of the queue manager more room"),
    2202: Reason("CONNECTION_QUIESCING", "lost"),
    CONNECTION_STOPPING: Reason("CONNECTION_STOPPING", "lost"),
    2218: Reason("MSG_TOO_BIG_FOR_CHANNEL", "refused", _SIZE),
    2381: Reason("KEY_REPOSITORY_ERROR", "stops", _TLS),
    2393: Reason("SSL_INITIALIZATION_ERROR", "stops", _TLS),
    2396: Reason("SSL_NOT_ALLOWED", "stops", _TLS),
    2397: Reason("JSSE_ERROR", "stops", _TLS),
    2398: Reason("SSL_PEER_NAME_MISMATCH", "stops", _TLS),
    2400: Reason("UNSUPPORTED_CIPHER_SUITE", "stops", _TLS),
    2537: Reason("CHANNEL_NOT_AVAILABLE", "lost"),
    2538: Reason("HOST_NOT_AVAILABLE", "lost"),
    2539: Reason("CHANNEL_CONFIG_ERROR", "stops", _CHANNEL),
    2540: Reason("UNKNOWN_CHANNEL_NAME", "stops", _CHANNEL),
}
"""Every other reason counts as a lost connection: the task asks again."""


class MqLost(ConnectionError):
    """
    The connection is lost, or must be given up: whether a commit was done is not known.

    Attributes:
        reason: the code.
    """

    def __init__(self, text: str, reason: int) -> None:
        super().__init__(text)
        self.reason = reason


class MqWaits(RetriableError):
    """
    The queue manager cannot do it now. Do what the text says, or wait; the task asks again.

    Attributes:
        reason: the code.
    """

    def __init__(self, text: str, *, reason: int, remedy: str) -> None:
        super().__init__(text, code="IBMMQ", remedy=remedy)
        self.reason = reason


class MqRefused(RecoveryError):
    """
    The queue manager refuses. Do what the text says; the task is retried.

    Attributes:
        reason: the code; 0: it is not the queue manager that refuses.
    """

    def __init__(self, text: str, *, reason: int = 0, remedy: str) -> None:
        super().__init__(text, remedy=remedy)
        self.reason = reason


class MqNotTaken(OutputError):
    """The queue manager does not take this message, or as many in one unit of work."""


def error_of(reason: int, doing: str, *, name: str = "", sends: bool = False, chosen: bool = False) -> Exception:
    """
    What a failed call raises.

    Args:
        reason: its code.
        doing: what was done, such as `open the queue ORDERS`.
        name: of a code that is not in `REASONS`.
        sends: whether a message was sent, or units of work with sent messages committed. One that is too large is then
            refused; so is a unit of work with too many messages, whose steps are committed one by one then.
        chosen: whether a message has chosen the queue. One that cannot be used is then the fault of the message.
    """
    known = REASONS.get(reason) or Reason(name.removeprefix("MQRC_") or "?", "lost")
    text = f"the queue manager did not {doing}: MQRC_{known.name} ({reason})"
    if (sends and (known.kind == "refused" or reason == SYNCPOINT_LIMIT_REACHED)) or (chosen and reason in _OF_A_QUEUE):
        return MqNotTaken(f"{text}. {known.remedy[0].upper()}{known.remedy[1:]}")
    match known.kind:
        case "lost":
            return MqLost(text, reason)
        case "waits":
            return MqWaits(text, reason=reason, remedy=known.remedy)
        case _:
            return MqRefused(text, reason=reason, remedy=known.remedy)
