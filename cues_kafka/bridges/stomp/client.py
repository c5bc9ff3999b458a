"""One connection to a STOMP 1.2 broker, with a thread that reads.

A lost connection stays lost: its owner makes another. It knows no queue and no transaction: it sends frames, waits for
receipts, and hands on MESSAGE frames.
"""

from __future__ import annotations

import itertools
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.frames import Frame, FrameError, Parser, escaped, head_of
from cues_kafka.bridges.stomp.refusals import WHO, StompRefused, not_stomp, refusal, said_by
from cues_kafka.bridges.tls import early_end, tls_refusal

LATE: Final = 2.5
"""After how many times the agreed interval a silent broker counts as lost; the standard asks for some margin."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""The largest body of a frame that is taken."""

GOODBYE_S: Final = 0.2
"""How long closing tries to say goodbye."""

LEAVE_S: Final = 2.0
"""How long the broker has to close a connection behind a goodbye."""

READ_BYTES: Final = 64 * 1024

TOGETHER_BYTES: Final = 16 * 1024
"""Bytes of frames that wait for others, at most. The broker works on them while the next ones are made."""

NO_HEART_BEAT_S: Final = 3600.0

QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Has the system tell at once that bytes have arrived; None: it does not know that. It forgets it after a while.

ActiveMQ Classic sends a receipt and the message behind it in two small packets, and its system holds the second one
back until the first one is acknowledged (Nagle). Linux does that 40 ms later, where nothing is sent that could carry
it. So each commit of a marker waited for 40 ms.
"""


@dataclass(frozen=True, slots=True)
class StompLogin:
    """
    What a client needs to connect.

    Attributes:
        address: where.
        vhost: the virtual host; empty: the name of the host.
        client_id: for subscriptions that outlive the connection; empty: none.
        heart_beat_s: how often each side says that it lives, in seconds; 0: never.
        timeout_s: how long connecting, and each answer of the broker, may take, in seconds.
        tls: how the connection is encrypted; None: it is not.
        version: of STOMP.
    """

    address: StompAddress
    vhost: str = ""
    client_id: str = ""
    heart_beat_s: float = 10.0
    timeout_s: float = 10.0
    tls: ssl.SSLContext | None = None
    version: str = "1.2"


def acknowledge_at_once(connection: socket.socket) -> None:
    """Have the system tell the other side now that bytes have arrived."""
    if QUICK_ACK is not None:
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)


class StompConnection:
    """
    A connection that is open. Threads may share it.

    Attributes:
        server: what the broker calls itself, such as ``ActiveMQ/5.17.2``; empty: it does not say.
    """

    def __init__(
        self,
        login: StompLogin,
        *,
        on_message: Callable[[Frame], None] = lambda _: None,
        on_read: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Connect, and wait until the broker has accepted it.

        Args:
            login: where and how.
            on_message: called with each MESSAGE frame, on the connection's thread.
            on_read: called behind the messages of one read, on the connection's thread. A receiver that wakes another
                thread there, and not for each message, shares the interpreter with it less often.
            on_lost: called once when the connection is lost, on any thread; not after `close`.

        Raises:
            OSError: the broker does not answer.
            StompRefused: it refuses.
        """
        self._login = login
        self._on_message, self._on_read, self._on_lost = on_message, on_read, on_lost
        self._news = threading.Condition()
        self._receipts: set[str] = set()
        self._numbers = itertools.count(1)
        self._why = ""
        self._refused = ""
        self._closing = False
        self._writing = threading.Lock()
        self._unconfirmed = ""  # the receipt of the newest acknowledgements
        self._in_turn: dict[str, bytes] = {}  # what is sent when this receipt comes
        self._later: list[bytes] = []
        self._later_bytes = 0
        self._beat_s = self._silence_s = NO_HEART_BEAT_S
        self._sent_s = time.monotonic()
        self.server = ""
        self._socket = self._connected()
        self._parser = Parser(MOST_BYTES)
        self._waiting: list[Frame] = []
        self._thread: threading.Thread | None = None
        try:
            self._accept()
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(login.timeout_s)
        self._readable = selectors.DefaultSelector()
        self._readable.register(self._socket, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="stomp", daemon=True)
        self._thread.start()

    # What the owner asks for

    def send(
        self, command: str, headers: Mapping[str, str], body: bytes = b"", *, receipt: bool = False, text: bool = False
    ) -> None:
        """
        Send a frame.

        Args:
            command: such as `SUBSCRIBE`.
            headers: by name.
            body: as it is.
            receipt: whether to wait until the broker has done what the frame asks for. It has then done all frames
                before it, too.
            text: see `Frame`.

        Raises:
            OSError: the connection is lost, or there is no answer in time; then it is lost, too.
            StompRefused: the broker refuses this frame or an earlier one.
        """
        number = str(next(self._numbers)) if receipt else ""
        more = {"receipt": number} if receipt else {}
        self._write(Frame(command, {**headers, **more}, body, text).encode())
        if receipt:
            self._await(number)

    def send_in_turn(self, first: Frame, second: Frame) -> str:
        """
        Send a frame now, and another one as soon as the broker has done the first and all before it; wait for neither.

        The second one is never sent if the broker refuses a frame before, or the connection is lost or closed.

        Args:
            first: the frame for now.
            second: the frame for then.

        Returns:
            What `wait_for` takes, to wait until the broker has done the second one.

        Raises:
            OSError, StompRefused: see `send`.
        """
        turn, done = (str(next(self._numbers)) for _ in range(2))
        later = second._replace(headers={**second.headers, "receipt": done})
        self._in_turn[turn] = later.encode()
        self._write(first._replace(headers={**first.headers, "receipt": turn}).encode())
        return done

    def wait_for(self, done: str) -> None:
        """
        Wait for what `send_in_turn` has begun.

        Raises:
            OSError, StompRefused: see `send`.
        """
        self._await(done)

    def send_later(self, data: bytes) -> None:
        """
        Send the bytes of a frame before the next one that `send` sends, together with it.

        A write for each message would take longer than all else.

        Raises:
            OSError, StompRefused: see `send`.
        """
        with self._writing:
            self._later.append(data)
            self._later_bytes += len(data)
            full = self._later_bytes >= TOGETHER_BYTES
        if full:
            self._write(b"")

    @property
    def is_open(self) -> bool:
        """Whether `check` raises nothing."""
        return not (self._refused or self._why)

    def check(self) -> None:
        """
        See whether the connection is open.

        Raises:
            OSError: it is lost.
            StompRefused: the broker has refused a frame, and closed it.
        """
        if self._refused:
            raise self._refusal(self._refused)
        if self._why:
            raise ConnectionResetError(self._why)

    def close(self, subscription: str = "") -> None:
        """
        Say goodbye and close. What has no receipt may be done or not. It never raises.

        It waits up to `LEAVE_S` until the broker has confirmed the newest acknowledgements.

        Without a goodbye, Artemis counts a failed delivery of each message that is not acknowledged, and gives a
        message up after ten.

        Args:
            subscription: one that is ended before; empty: none. Artemis counts without that, too.
        """
        with self._news:  # what is acknowledged is done before another consumer may come
            number, self._unconfirmed = self._unconfirmed, ""
            if number:
                self._news.wait_for(lambda: number in self._receipts or not self.is_open, LEAVE_S)
            first, self._closing = not self._closing, True
            lost, self._why = self._why, self._why or "the connection is closed"
            self._news.notify_all()
        if not first:
            return
        with suppress(OSError, ValueError):
            if not lost and self._writing.acquire(timeout=GOODBYE_S):
                try:
                    self._socket.settimeout(GOODBYE_S)
                    last = [Frame("UNSUBSCRIBE", {"id": subscription})] if subscription else []
                    self._socket.sendall(b"".join(one.encode() for one in (*last, Frame("DISCONNECT"))))
                finally:
                    self._writing.release()
            self._socket.shutdown(socket.SHUT_RDWR if lost else socket.SHUT_WR)
        if self._thread is None:
            self._socket.close()

    def acknowledge(self, tokens: Sequence[str], subscription: str) -> None:
        """
        Acknowledge deliveries in one write.

        It waits until the broker has confirmed those before. So those of one call at most are not confirmed, and the
        broker works while the next batch is read. Artemis needs 25 to 110 ms for 500 of them.

        Args:
            tokens: what names each of them, in order: the header `ack`, or in STOMP 1.1 `message-id`.
            subscription: which one has delivered them.

        Raises:
            OSError, StompRefused: see `send`.
        """
        unconfirmed, self._unconfirmed = self._unconfirmed, ""
        if unconfirmed:
            self._await(unconfirmed)
        number = str(next(self._numbers))
        name, more = ("id", {}) if self._login.version == "1.2" else ("message-id", {"subscription": subscription})
        rest = head_of(more)
        heads = [f"ACK\n{name}:{escaped(one)}\n{rest}" for one in tokens]
        heads[-1] += head_of({"receipt": number})
        self._write("".join([f"{one}\n\0" for one in heads]).encode())
        self._unconfirmed = number

    # Connecting

    def _connected(self) -> socket.socket:
        login, address = self._login, self._login.address
        try:
            made = socket.create_connection((address.host, address.port), timeout=login.timeout_s)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, ValueError) as error:
            raise self._away(error) from None
        if login.tls is None:
            return made
        try:
            return login.tls.wrap_socket(made, server_hostname=address.host)
        except (OSError, ValueError) as error:
            made.close()
            raise self._early(error) from None

    def _accept(self) -> None:
        login, address = self._login, self._login.address
        beat_ms = round(login.heart_beat_s * 1000)
        beats = f"{beat_ms},{beat_ms}"
        headers = {"accept-version": login.version, "host": login.vhost or address.host, "heart-beat": beats}
        headers |= {"login": address.user} if address.user is not None else {}
        headers |= {"passcode": address.password} if address.password is not None else {}
        headers |= {"client-id": login.client_id} if login.client_id else {}
        try:
            self._write(Frame("CONNECT", headers).encode())
            answer = self._first(time.monotonic() + login.timeout_s)
        except FrameError as error:
            raise not_stomp(str(error)) from None
        except OSError as error:
            raise self._early(error) from None
        if answer.command == "ERROR":
            raise self._refusal(said_by(answer))
        if answer.command != "CONNECTED":
            raise not_stomp("it is not a frame that follows CONNECT")
        if answer.headers.get("version") != login.version:
            raise StompRefused(
                f"the broker speaks STOMP {answer.headers.get('version', '1.0')!r}, and {login.version} is needed",
                remedy=f"enable STOMP {login.version} at the broker; the task is retried",
            )
        self.server = answer.headers.get("server", "")
        self._agree(beat_ms, answer.headers.get("heart-beat", "0,0"))

    def _first(self, until_s: float) -> Frame:
        while True:
            self._socket.settimeout(max(0.001, until_s - time.monotonic()))
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("it closed the connection before it answered")
            frames = [*self._parser.feed(data)]
            if frames:
                self._waiting = frames[1:]
                return frames[0]

    def _agree(self, mine_ms: int, theirs: str) -> None:
        """Heart-beats: each side sends as often as it offers and the other one wants, whichever is less often."""
        try:
            sends_ms, wants_ms = (int(one) for one in theirs.split(","))
        except ValueError:
            sends_ms, wants_ms = 0, 0
        if mine_ms and wants_ms:
            self._beat_s = max(mine_ms, wants_ms) / 1000
        if mine_ms and sends_ms:
            self._silence_s = LATE * max(mine_ms, sends_ms) / 1000

    def _away(self, error: object) -> OSError:
        return ConnectionError(f"the STOMP broker does not answer: {self._login.address.quiet(error)}")

    def _early(self, error: BaseException) -> Exception:
        """What an end of the connection means before the broker has answered the login."""
        address = self._login.address
        return tls_refusal(WHO, address, error) or self._away(f"{address.quiet(error)}. {early_end(address)}")

    def _refusal(self, said: str) -> StompRefused:
        return refusal(said, self._login.address)

    def _run(self) -> None:
        heard_s = time.monotonic()
        try:
            for frame in self._waiting:
                self._take(frame)
            self._on_read()
            while not (self._closing and time.monotonic() - self._sent_s > LEAVE_S):
                wait_s = LEAVE_S if self._closing else max(0.01, min(self._beat_s, self._silence_s) / 4)
                data = self._read(min(wait_s, LEAVE_S))
                now_s = time.monotonic()
                if data == b"":
                    break
                if data is not None:
                    acknowledge_at_once(self._socket)
                    heard_s = now_s
                    try:
                        for frame in self._parser.feed(data):
                            self._take(frame)
                    finally:
                        self._on_read()
                if now_s - heard_s > self._silence_s:
                    raise TimeoutError(f"the STOMP broker was silent for {self._silence_s:g} s")
                if now_s - self._sent_s > self._beat_s / 2 and not self._closing:
                    self._write(b"\n")
            self._lose("the STOMP broker closed the connection")
        except StompRefused:  # of a heart-beat, behind a refusal: `check` raises it where the owner asks
            pass
        except (OSError, ValueError) as error:  # ValueError: what came is no frame, or the socket was closed meanwhile
            self._lose(f"the connection to the STOMP broker is lost: {self._login.address.quiet(error)}")
        finally:
            self._readable.close()
            self._socket.close()

    def _read(self, wait_s: float) -> bytes | None:
        """What has arrived; None: nothing within this time. Empty: the broker has closed the connection."""
        if self._login.tls is None:
            return self._socket.recv(READ_BYTES) if self._readable.select(wait_s) else None
        with self._writing:  # one thread at a time may use a connection of TLS
            data = self._taken()
        if data is None and self._readable.select(wait_s):
            with self._writing:
                data = self._taken()
        return data

    def _taken(self) -> bytes | None:
        """What TLS has decrypted by now; None: nothing whole."""
        self._socket.settimeout(0.0)
        try:
            return self._socket.recv(READ_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return None
        finally:
            self._socket.settimeout(self._login.timeout_s)

    def _take(self, frame: Frame) -> None:
        match frame.command:
            case _ if self._closing:
                pass
            case "MESSAGE":
                self._on_message(frame)
            case "RECEIPT":
                number = frame.headers.get("receipt-id", "")
                if (then := self._in_turn.pop(number, None)) is not None:
                    self._write(then)  # it raises where a frame before was refused
                    return
                with self._news:
                    self._receipts.add(number)
                    self._news.notify_all()
            case "ERROR":
                with self._news:
                    self._refused = self._refused or said_by(frame)
                self._lose("the STOMP broker refused a frame")
            case _:
                pass  # the standard lets a client ignore what it does not know

    def _await(self, number: str) -> None:
        until_s = time.monotonic() + self._login.timeout_s
        with self._news:
            while number not in self._receipts:
                self.check()
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    break
                self._news.wait(left_s)
            else:
                self._receipts.discard(number)
                self.check()  # a frame before it may have been refused
                return
        self._lose("the STOMP broker did not answer in time")
        raise TimeoutError("the STOMP broker did not answer in time")

    def _write(self, data: bytes) -> None:
        try:
            with self._writing:
                self.check()  # here: behind a goodbye nothing is sent
                if self._later:
                    data = b"".join([*self._later, data])
                    self._later, self._later_bytes = [], 0
                self._socket.sendall(data)
                self._sent_s = time.monotonic()
        except (OSError, ValueError) as error:  # ValueError: TLS on a socket that is closed
            self._lose(f"the connection to the STOMP broker is lost: {self._login.address.quiet(error)}")
            self.check()

    def _lose(self, why: str) -> None:
        with self._news:
            first, self._why = not self._why, self._why or why
            self._news.notify_all()
        if first and not self._closing:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._on_lost()
