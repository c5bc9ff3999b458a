"""One connection to an MQTT broker, by paho-mqtt, with a thread of our own.

paho's own loop reconnects when it likes to, and waits for its thread without a limit when it stops. Ours does neither:
a lost connection stays lost, and its owner makes another one. Nor does ours need descriptors below 1,024.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cues_kafka.bridges.mqtt.address import MqttAddress
from cues_kafka.bridges.mqtt.wire import BufferedClient
from cues_kafka.bridges.tls import early_end, tls_refusal
from cues_kafka.errors import RecoveryError, RetriableError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.bridges")

ID_PROPERTY: Final = "cues-id"
"""The user property that names a message, for a source and in what a sink publishes."""

NOTHING: Final = "cues-kafka/confirm"
"""A filter that no session of ours has."""

LOOK_S: Final = 1.0
"""How often a connection without news looks after its keep-alive."""

LEAVE_S: Final = 1.0
"""How long closing waits for the thread, which writes what is left and says goodbye."""

DISCONNECT: Final = b"\xe0\x00"
"""The packet that ends a connection without an error, and keeps the session."""

WHO: Final = "the MQTT broker"

AWAY: Final = frozenset({"Server unavailable", "Server busy", "Quota exceeded", "Connection rate exceeded"})
"""Refusals that may end by themselves. The others need a change of the broker or of the declaration."""


@dataclass(frozen=True, slots=True)
class Login:
    """
    What a client needs to connect.

    Attributes:
        address: where.
        version: of MQTT.
        keep_alive_s: see `Mqtt`.
        timeout_s: see `Mqtt`.
        tls: how the connection is encrypted; None: it is not.
    """

    address: MqttAddress
    version: str
    keep_alive_s: int
    timeout_s: float
    tls: ssl.SSLContext | None

    @property
    def modern(self) -> bool:
        """Whether it is MQTT 5."""
        return self.version == "5"


class MqttConnection:
    """
    A connection that is open.

    Attributes:
        session_present: whether the broker had the session already.
        granted: what the broker has said when it accepted the connection, by the names of MQTT 5; empty with 3.1.1.
    """

    def __init__(
        self,
        login: Login,
        name: str,
        *,
        clean: bool,
        properties: dict[str, Any] | None = None,
        on_message: Callable[[Any], None] = lambda _: None,
        on_lost: Callable[[], None] = lambda: None,
        on_published: Callable[[int, Any], None] = lambda _, __: None,
    ) -> None:
        """
        Connect, and wait until the broker has accepted it.

        Args:
            login: where and how.
            name: the client id.
            clean: whether a session of this name is forgotten.
            properties: of MQTT 5, by name.
            on_message: called with each message, on the connection's thread.
            on_lost: called when a connection that the broker had accepted is lost, on its thread.
            on_published: called with number and reason of each acknowledged message, on its thread.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: it refuses.
        """
        self.session_present = False
        self.granted: dict[str, Any] = {}
        self._login, self._name = login, name
        self._on_message, self._on_lost, self._on_published = on_message, on_lost, on_published
        self._news = threading.Condition()
        self._accepted = False
        self._refused: Any = None
        self._subscribed: dict[int, list[Any]] = {}
        self._confirming: dict[int, Callable[[], None]] = {}
        self._lost = ""
        self._logged = ""  # errors of the socket, which the client only logs
        self._closing = False
        self._poked = False
        self._wake_r, self._wake_w = socket.socketpair()
        self._wake_r.setblocking(False)
        self._wake_w.setblocking(False)
        self._client = self._made(clean)
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{name}", daemon=True)
        try:
            self._connect(clean, properties or {})
        except BaseException:
            self.close()
            raise

    def _made(self, clean: bool) -> BufferedClient:
        login = self._login
        modern = login.modern
        client = BufferedClient(
            CallbackAPIVersion.VERSION2,
            modern=modern,
            took=self._on_message,
            client_id=self._name,
            clean_session=None if modern else clean,
            protocol=MQTTProtocolVersion.MQTTv5 if modern else MQTTProtocolVersion.MQTTv311,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        client.connect_timeout = login.timeout_s
        client.max_inflight_messages_set(65_535)
        if login.address.user is not None:
            client.username_pw_set(login.address.user, login.address.password)
        if login.tls is not None:
            client.tls_set_context(login.tls)
        client.on_connect = self._heard_accepted
        client.on_subscribe = self._heard_subscribed
        client.on_unsubscribe = lambda _, __, mid, ___, ____: self._heard_confirmed(mid)
        client.on_disconnect = self._heard_lost
        client.on_publish = lambda _, __, mid, reason, ___: self._on_published(mid, reason)
        client.on_log = self._heard_log
        client.on_socket_open = lambda _, __, sock: _without_delay(sock)
        client.on_socket_register_write = lambda *_: None  # else other threads would write by themselves
        return client

    def _connect(self, clean: bool, properties: dict[str, Any]) -> None:
        login = self._login
        more: dict[str, Any] = {}
        if login.modern:
            more["clean_start"] = clean
            more["properties"] = properties_of(PacketTypes.CONNECT, properties)
        try:
            self._client.connect(login.address.host, login.address.port, login.keep_alive_s, **more)
        except (OSError, ValueError) as error:
            away = self.away(error)
            if login.address.encrypted and isinstance(error, ConnectionResetError | TimeoutError):
                away = RetriableError(f"{away}. {early_end(login.address)}")
            raise tls_refusal(WHO, login.address, error) or away from None
        self._thread.start()
        try:
            self._await(lambda: self._accepted or self._refused is not None, "the answer to the login")
        except ConnectionResetError as error:
            refused = tls_refusal(WHO, login.address, self._logged)
            raise refused or RetriableError(f"{error}. {early_end(login.address)}") from None
        self._client.on_log = None  # it would make a text of each packet
        if self._refused is not None:
            raise self._refusal(self._refused)

    def _refusal(self, reason: Any) -> RecoveryError | RetriableError:
        said = self.quiet(reason)
        if str(reason) in AWAY:
            return RetriableError(f"the MQTT broker: {said}")
        remedies = {
            "Bad user name or password": "correct user and password in the address of Mqtt(...)",
            # mosquitto says so of a wrong password, too
            "Not authorized": "correct user and password in the address of Mqtt(...), or let this user connect with "
            f"the client id {self._name!r}",
            "Unsupported protocol version": 'name the version that the broker has: Mqtt(..., version="3.1.1")',
        }
        return RecoveryError(
            f"the MQTT broker refuses the connection: {said}",
            remedy=remedies.get(str(reason), "see the log of the broker") + "; the task is retried",
        )

    # What the owner asks for

    def subscribe(self, filters: list[tuple[str, Any]]) -> None:
        """
        Subscribe, and wait until the broker has granted it.

        Args:
            filters: each with its QoS, or with its options.

        Raises:
            OSError, RetriableError: the broker does not answer.
            RecoveryError: it refuses a filter, or grants no QoS 1.
        """
        code, mid = self._client.subscribe(filters)
        self._done(code)
        self._poke()
        self._await(lambda: mid in self._subscribed, "the answer to the subscription")
        for (name, _), reason in zip(filters, self._subscribed.pop(mid or 0), strict=True):
            if reason.value == 0:
                raise RecoveryError(
                    f"the MQTT broker grants QoS 0 for {name!r}, which delivers nothing again after a crash",
                    remedy="allow QoS 1 at the broker; the task is retried",
                )
            if reason.is_failure:
                raise RecoveryError(
                    f"the MQTT broker refuses the filter {name!r}: {self.quiet(reason)}",
                    remedy="let this user read it, or correct topics=; the task is retried",
                )

    def ack(self, packets: Iterable[tuple[int, int]]) -> None:
        """
        Acknowledge messages.

        Args:
            packets: number and QoS of each.

        Raises:
            OSError: the connection is lost.
        """
        self.check()
        packets = list(packets)
        self._client.acknowledge([mid for mid, qos in packets if qos == 1])
        for mid, qos in packets:
            if qos != 1:
                self._done(self._client.ack(mid, qos))
        self._poke()

    def confirm(self, confirmed: Callable[[], None]) -> None:
        """
        Ask the broker whether it has handled all that was sent before, and go on.

        It reads the packets of a client in order, so its answer to an unsubscription of nothing says so.

        Args:
            confirmed: called when it has, on the connection's thread.

        Raises:
            OSError: the connection is lost.
        """
        with self._news:
            code, mid = self._client.unsubscribe(NOTHING)
            if mid is not None:
                self._confirming[mid] = confirmed
        self._done(code)
        self._poke()

    def publish(self, topic: str, payload: bytes, *, retain: bool, properties: Properties | None) -> int:
        """
        Send a message with QoS 1; gives its number, which `on_published` gets.

        Raises:
            OSError: the connection is lost.
        """
        self.check()
        info = self._client.publish(topic, payload, qos=1, retain=retain, properties=properties)
        self._done(info.rc)
        self._poke()
        return info.mid

    def check(self) -> None:
        """
        See whether the connection is open.

        Raises:
            OSError: it is lost.
        """
        if self._lost:
            raise ConnectionResetError(self._lost)

    def _done(self, code: int) -> None:
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise ConnectionResetError(self._lost or "the connection to the MQTT broker is lost")

    def close(self) -> None:
        """Write what is left, say goodbye, and close; what the broker does not take within a second is dropped."""
        self._closing = True
        self._poked = False
        self._poke()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_S)
        sock: Any = self._client.socket()
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        if not self._thread.is_alive():
            self._free()

    def quiet(self, text: object) -> str:
        """A text without the parts of the address."""
        return self._login.address.quiet(text)

    def away(self, error: BaseException) -> RetriableError:
        """The error of a broker that does not answer."""
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        return RetriableError(f"the MQTT broker: {type(error).__name__}: {self.quiet(text)}")

    def _await(self, there: Callable[[], bool], what: str) -> None:
        with self._news:
            if not self._news.wait_for(lambda: there() or self._lost, self._login.timeout_s):
                raise RetriableError(f"the MQTT broker did not give {what} within {self._login.timeout_s:g} s")
            if not there():
                raise ConnectionResetError(self._lost)

    # What the thread hears

    def _heard_log(self, _: Any, __: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR:
            self._logged = text

    def _heard_accepted(self, _: Any, __: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._news:
            if reason.is_failure:
                self._refused = reason
            else:
                self.session_present = bool(flags.session_present)
                self.granted = {} if properties is None else dict(properties.json())
                self._accepted = True
            self._news.notify_all()

    def _heard_subscribed(self, _: Any, __: Any, mid: int, reasons: list[Any], ___: Any) -> None:
        with self._news:
            self._subscribed[mid] = reasons
            self._news.notify_all()

    def _heard_confirmed(self, mid: int) -> None:
        with self._news:
            confirmed = self._confirming.pop(mid, None)
        if confirmed is not None:
            confirmed()

    def _heard_lost(self, _: Any, __: Any, flags: Any, reason: Any, ___: Any) -> None:
        who = "the broker has ended the connection" if flags.is_disconnect_packet_from_server else "it is lost"
        self._lose(f"the connection to the MQTT broker: {who} ({self.quiet(reason)})")

    def _lose(self, why: str) -> None:
        with self._news:
            if self._lost:
                return
            self._lost = why
            self._news.notify_all()
        if self._accepted and not self._closing:
            self._on_lost()

    def _poke(self) -> None:
        if self._poked:  # the thread looks at what there is when it wakes
            return
        self._poked = True
        with suppress(OSError):  # full: it is awake already; closed: it has ended
            self._wake_w.send(b"\0")

    def _run(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake_r, selectors.EVENT_READ)
                while not self._closing and self._turn(selector):
                    pass
            if self._closing and not self._lost:
                self._leave()
        except Exception as error:  # noqa: BLE001 - a packet that cannot be read, such as one with a text not in UTF-8
            self._lose(f"the MQTT broker sent what cannot be read: {type(error).__name__}: {self.quiet(error)}")
        finally:
            self._lose("the connection to the MQTT broker is closed")
            if self._closing:
                self._free()

    def _turn(self, selector: selectors.BaseSelector) -> bool:
        """Wait for news, and take them; False: the connection is lost."""
        client, sock = self._client, self._client.socket()
        if sock is None:
            return False
        key = self._watched(selector, sock, selectors.EVENT_READ | (client.want_write() and selectors.EVENT_WRITE))
        held = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        events = {found.fd: what for found, what in selector.select(0 if held else LOOK_S)}
        if self._wake_r.fileno() in events:
            self._wake_r.recv(4096)
            self._poked = False
        came = events.get(key.fd, 0)
        codes = [
            client.read() if came & selectors.EVENT_READ or held else MQTTErrorCode.MQTT_ERR_SUCCESS,
            client.write() if client.want_write() else MQTTErrorCode.MQTT_ERR_SUCCESS,
            client.loop_misc(),
        ]
        return all(code is MQTTErrorCode.MQTT_ERR_SUCCESS for code in codes)

    def _watched(self, selector: selectors.BaseSelector, sock: Any, mask: int) -> selectors.SelectorKey:
        """The socket in the selector, with these events."""
        try:
            key = selector.get_key(sock)
        except KeyError:
            return selector.register(sock, mask)
        return key if key.events == mask else selector.modify(sock, mask)

    def _leave(self) -> None:
        """
        Say goodbye, and wait until the broker has closed the connection.

        A close while it still sends would reset the connection, and acknowledgements that it has not read were lost.
        """
        sock: Any = self._client.socket()
        if sock is None:
            return
        sock.settimeout(LEAVE_S)
        while self._client.want_write() and self._client.write() is MQTTErrorCode.MQTT_ERR_SUCCESS:
            pass
        until = time.monotonic() + LEAVE_S
        with suppress(OSError):
            sock.sendall(DISCONNECT)  # paho's own would close the socket behind it
            while time.monotonic() < until and sock.recv(65_536):
                pass

    def _free(self) -> None:
        for one in (self._client.socket(), self._wake_r, self._wake_w):
            if one is not None:
                with suppress(OSError):
                    one.close()


def _without_delay(sock: Any) -> None:
    """Small packets are sent at once: the other end acknowledges them only 40 ms later where they are held back."""
    with suppress(OSError, AttributeError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def properties_of(packet: int, given: dict[str, Any]) -> Properties:
    """Properties of MQTT 5, by name."""
    made: Any = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in given.items():
        setattr(made, name, value)
    return made  # type: ignore[no-any-return]
