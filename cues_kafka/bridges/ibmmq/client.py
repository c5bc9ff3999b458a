"""
One connection to a queue manager, by IBM's package `ibmmq`; the only file that imports it.

Not run against a real IBM MQ; tested on a fake of its client.

The verbs are called in the C layer of the package. Its own `Queue.get` drops the message where a conversion fails in
its second call, and with OpenTelemetry it reads the headers of strangers while the message is in no one's hands.

Three rules keep units of work whole:

- The client never connects again by itself (`MQCNO_RECONNECT_DISABLED`): half of a unit of work would be committed.
- `MQDISC` commits an open unit of work. So each connection is ended by `MQBACK` first, and without an answer to that
  it is not ended at all: the queue manager takes back what a lost connection leaves.
- Nothing disconnects when an object is collected (`disconnect_on_exit=False`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import ibmmq

from cues_kafka.bridges.ibmmq import reasons
from cues_kafka.bridges.ibmmq.address import IbmMqAddress
from cues_kafka.bridges.ibmmq.messages import Descriptor, MqMessage
from cues_kafka.bridges.ibmmq.reasons import error_of
from cues_kafka.bridges.ibmmq.rfh2 import UTF_8

CMQC: Final = ibmmq.CMQC
MQI: Final = ibmmq.ibmmqc
"""The C layer: each call gives what it returns, then completion code and reason code."""

ROOM: Final = 1 << 20
"""Bytes of the buffer for messages, which grows with them."""

MOST_BYTES: Final = 100 << 20
"""The largest message of IBM MQ."""

CONSUMES: Final = CMQC.MQOO_INPUT_EXCLUSIVE | CMQC.MQOO_NO_READ_AHEAD | CMQC.MQOO_FAIL_IF_QUIESCING
"""One reader at a time: a second one is refused (`MQRC_OBJECT_IN_USE`). The client reads nothing before it is asked."""

BROWSES: Final = CONSUMES | CMQC.MQOO_BROWSE

TAKE: Final = CMQC.MQGMO_SYNCPOINT | CMQC.MQGMO_WAIT | CMQC.MQGMO_PROPERTIES_FORCE_MQRFH2
BROWSE: Final = CMQC.MQGMO_BROWSE_NEXT | CMQC.MQGMO_WAIT
TAKE_ALONE: Final = CMQC.MQGMO_NO_SYNCPOINT
TAKE_WITH: Final = CMQC.MQGMO_SYNCPOINT
"""How a message is read: in the unit of work; left in the queue; in none; in the unit of work without waiting."""

PERSISTENT: Final = CMQC.MQPER_PERSISTENT
PASSING: Final = CMQC.MQPER_NOT_PERSISTENT


@dataclass(frozen=True, slots=True)
class MqLogin:
    """
    What a client needs to connect.

    Attributes:
        address: where, and who.
        heartbeat_s: after how many seconds of silence each side asks whether the other one is there.
        cipher: a CipherSpec of IBM MQ, for TLS; empty: as it comes.
        key_repository: file with certificates, as IBM's client takes it.
        key_label: of our own certificate in it; empty: the default one.
    """

    address: IbmMqAddress
    heartbeat_s: int = 10
    cipher: str = ""
    key_repository: str = ""
    key_label: str = ""


class MqConnection:
    """
    A connection that is open, and its unit of work. One thread at a time uses it.

    Attributes:
        room: bytes of the buffer for messages; a message that has no room makes it larger.
    """

    def __init__(self, login: MqLogin, room: int = ROOM) -> None:
        """
        Connect.

        Args:
            login: where and how.
            room: bytes of the buffer for messages.

        Raises:
            OSError, RetriableError: the queue manager does not answer.
            MqRefused: it refuses.
        """
        self._login, self.room = login, room
        self._manager: Any = ibmmq.QueueManager(None, disconnect_on_exit=False)
        address = login.address
        channel = ibmmq.CD()
        channel.HeartbeatInterval = login.heartbeat_s
        channel.SharingConversations = 1
        channel.MaxMsgLength = MOST_BYTES
        options = ibmmq.CNO()
        options.Options = CMQC.MQCNO_CLIENT_BINDING | CMQC.MQCNO_RECONNECT_DISABLED | CMQC.MQCNO_HANDLE_SHARE_BLOCK
        if hasattr(options, "ApplName"):
            options.ApplName = b"cues-kafka"
        given = (address.queue_manager, channel, address.channel, f"{address.host}({address.port})", address.user)
        password = address.password or ""
        try:
            self._manager.connect_tcp_client(*given, password, cno=options, sco=self._keys(channel))
        except ibmmq.MQMIError as error:
            self.close()
            raise _failed(error.comp, error.reason, f"accept a connection by {login.address.channel}") from None

    def _keys(self, channel: Any) -> Any:
        login = self._login
        if not login.address.encrypted:
            return None
        channel.SSLCipherSpec = login.cipher.encode()
        channel.CertificateLabel = login.key_label.encode()
        keys = ibmmq.SCO()
        keys.KeyRepository = login.key_repository.encode()
        return keys

    def open(self, queue: str, options: int) -> int:
        """
        Open a queue; gives its handle.

        Raises:
            OSError, RetriableError, MqRefused: see `error_of`.
        """
        named = ibmmq.OD(ObjectName=queue)
        handle, _, done, reason = MQI.MQOPEN(self._manager.get_handle(), named.pack(), options)
        if done != reasons.OK:
            raise _failed(done, reason, f"open the queue {queue}")
        return int(handle)

    def get(
        self, handle: int, options: int, *, wait_s: float = 0.0, msg_id: bytes = b"", convert: bool = False
    ) -> tuple[Descriptor, bytes] | None:
        """
        Read a message; None: none comes in this time.

        Args:
            handle: of the queue.
            options: see `TAKE`.
            wait_s: how long to wait for one, in seconds.
            msg_id: of the message; empty: the next one.
            convert: whether text is converted to UTF-8. A message that cannot be comes as it is.

        Raises:
            OSError, RetriableError, MqRefused: see `error_of`.
        """
        while True:
            found = ibmmq.MD()
            how = ibmmq.GMO()
            how.Options = options | CMQC.MQGMO_FAIL_IF_QUIESCING
            how.WaitInterval = round(wait_s * 1000)
            how.MatchOptions = CMQC.MQMO_MATCH_MSG_ID if msg_id else CMQC.MQMO_NONE
            found.MsgId = msg_id
            if convert:
                how.Options |= CMQC.MQGMO_CONVERT
                found.CodedCharSetId = UTF_8
            data, descriptor, _, length, done, reason = MQI.MQGET(
                self._manager.get_handle(), handle, found.pack(), how.pack(), self.room
            )
            if reason == reasons.NO_MSG_AVAILABLE:
                return None
            if reason == reasons.TRUNCATED_MSG_FAILED and self.room < MOST_BYTES:
                self.room = min(max(2 * self.room, 4 * length), MOST_BYTES)  # the message is in the queue still
                continue
            if reason == reasons.CONVERTED_MSG_TOO_BIG and self.room < MOST_BYTES:
                # It was taken, and came as it was. So it must go back, and be read with more room.
                self.room = min(4 * self.room, MOST_BYTES)
                raise _failed(done, reason, "convert a message in the room that it had")
            if done == reasons.FAILED or reason == reasons.TRUNCATED_MSG_FAILED:
                raise _failed(done, reason, "give a message")
            found.unpack(descriptor)
            return _descriptor(found), data

    def put(self, message: MqMessage, *, in_unit: bool = True, persistence: int = PERSISTENT) -> None:
        """
        Send a message.

        Args:
            message: the one.
            in_unit: whether it belongs to the unit of work; else it is there at once.
            persistence: whether it outlives a restart of the queue manager.

        Raises:
            OutputError: the queue manager does not take it, for what it says.
            OSError, RetriableError, MqRefused: see `error_of`.
        """
        own, how = ibmmq.MD(), ibmmq.PMO()
        own.Format = message.format.ljust(8).encode()
        own.CodedCharSetId = UTF_8
        own.Encoding = 0x0222
        own.Persistence = persistence
        own.CorrelId = message.correl_id
        own.ReplyToQ = message.reply_to.encode()
        if message.priority is not None:
            own.Priority = message.priority
        if message.expiry_s is not None:
            own.Expiry = max(1, round(message.expiry_s * 10))
        unit = CMQC.MQPMO_SYNCPOINT if in_unit else CMQC.MQPMO_NO_SYNCPOINT
        # Without SYNC_RESPONSE the client may say that a message was taken before it asks the queue manager.
        how.Options = unit | CMQC.MQPMO_NEW_MSG_ID | CMQC.MQPMO_SYNC_RESPONSE | CMQC.MQPMO_FAIL_IF_QUIESCING
        named = ibmmq.OD(ObjectName=message.queue)
        _, _, done, reason = MQI.MQPUT1(self._manager.get_handle(), named.pack(), own.pack(), how.pack(), message.body)
        if done != reasons.OK:
            raise _failed(
                done, reason, f"take a message for the queue {message.queue}", sends=True, chosen=message.chosen
            )

    def commit(self, *, sends: bool = False) -> None:
        """
        Commit the unit of work.

        Raises:
            OSError, RetriableError, MqRefused, OutputError: see `error_of`; it is not known whether it was done.
        """
        try:
            self._manager.commit()
        except ibmmq.MQMIError as error:
            raise _failed(error.comp, error.reason, "commit a unit of work", sends=sends) from None

    def close(self) -> None:
        """Take the unit of work back, and disconnect. It never raises."""
        with suppress(ibmmq.PYIFError, ibmmq.MQMIError):  # it was never connected, or it is lost
            self._manager.get_handle()
            try:
                self._manager.backout()
            except ibmmq.MQMIError as error:
                if error.reason not in reasons.NO_CONNECTION:
                    return  # MQDISC would commit what was not taken back
            self._manager.disconnect()


def _failed(done: int, reason: int, doing: str, *, sends: bool = False, chosen: bool = False) -> Exception:
    name = ibmmq.MQMIError(done, reason).error_as_string().rpartition(" ")[2]
    return error_of(reason, doing, name=name, sends=sends, chosen=chosen)


def _descriptor(found: Any) -> Descriptor:
    return Descriptor(
        msg_id=found.MsgId,
        format=_text(found.Format),
        correl_id=found.CorrelId,
        group_id=found.GroupId,
        ccsid=found.CodedCharSetId,
        encoding=found.Encoding,
        put_date=_text(found.PutDate),
        put_time=_text(found.PutTime),
        priority=found.Priority,
        persistence=found.Persistence,
        msg_type=found.MsgType,
        msg_flags=found.MsgFlags,
        seq=found.MsgSeqNumber,
        reply_to_q=_text(found.ReplyToQ),
        reply_to_q_mgr=_text(found.ReplyToQMgr),
        user=_text(found.UserIdentifier),
        application=_text(found.PutApplName),
    )


def _text(field: bytes) -> str:
    return field.decode("ascii", "backslashreplace").strip(" \0")
