"""What a function gets for `effects={"http": Http(...), "once": Once()}`: calls that know their step (E4)."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from cues_kafka.core.delivery import show_origin
from cues_kafka.errors import BrokerError, CallChanged, CallError, Fenced, RecoveryError, RetriableError
from cues_kafka.graph.calls import Http, Once
from cues_kafka.graph.effects import Effect
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clients import Sender
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import Coordinates, Positions
from cues_kafka.sinks.http_texts import without_query
from cues_kafka.sinks.journal import BARRIER, Answered, Journal, encode
from cues_kafka.sinks.response import Response

if TYPE_CHECKING:  # it needs an extra
    from cues_kafka.sinks.http import Server

REQUEST: Final = "Request"
RECORD: Final = "Record"
"""The crash points before and after a call, and before and after its record (E4)."""

MOST_KEY: Final = 200
"""Characters of the key of a `once`."""


@dataclass(slots=True)
class Delivery:
    """
    One attempt at one step, as its calls see it.

    Attributes:
        step: the messages of the step, in a word.
        hash: gives the delivery hash, 32 hexadecimal digits.
        replay: number of the replay of an error.
        values: what the function gets, by name.
        outage: why the batch is void, whatever the function makes of it; None: it is not.
        over: whether the step has ended.
    """

    step: bytes
    hash: Callable[[], str]
    replay: int
    values: dict[str, Any] = field(default_factory=dict)
    outage: BrokerError | None = None
    over: bool = False
    _count: int = 0

    def number(self) -> int:
        """The number of the next request of the step."""
        if self.over:
            raise RuntimeError("calls are valid only during the call of the function")
        self._count += 1
        return self._count - 1

    def call(self, name: str) -> bytes:
        """The part of a key in the journal that names the call."""
        return b"%d %b" % (self.replay, name.encode())


class Shared:
    """What the tasks of a processor share in one process: connections to servers, and a sender for the journals."""

    def __init__(self, servers: Mapping[str, Server], name: str, *, side_by_side: bool, threads: bool) -> None:
        """
        Args:
            servers: by name.
            name: of the sender.
            side_by_side: whether the function is a coroutine function, whose steps wait for calls side by side.
            threads: whether they do so in threads; a test that crashes at one call must stop all of them.
        """
        self.servers = servers
        self.side_by_side = side_by_side
        self.threads = threads
        self._name = name
        self._lock = threading.Lock()  # guards `_sender`; tasks send through it side by side, without the lock
        self._sender: Sender | None = None

    def send(self, broker: Broker, record: tuple[Any, ...]) -> int:
        """
        Write to a journal, and wait until it is acknowledged; gives the offset.

        Raises:
            BrokerError: it was not. It may be there all the same.
        """
        with self._lock:
            sender = self._sender = self._sender or broker.sender(self._name)
        try:
            return sender.send([record])[0].offset
        except BrokerError:
            with self._lock:
                if self._sender is sender:  # otherwise another task has replaced it meanwhile
                    self._sender = None
            sender.close()
            raise

    def close(self) -> None:
        """Close the connections. No task is left."""
        for server in self.servers.values():
            server.close()
        with self._lock:
            if self._sender is not None:
                self._sender.close()
            self._sender = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """
    What the calls of a task need of the process.

    Attributes:
        broker: the cluster.
        clock: time.
        wait: wait for these seconds, or until the task is given up.
        given_up: whether it is.
        point: mark a crash point.
    """

    broker: Broker
    clock: Clock
    wait: Callable[[float], None]
    given_up: Callable[[], bool]
    point: Callable[[str, str], None]


class Calls:
    """
    The calls of one task.

    Attributes:
        journal: where answers are kept; None: nowhere.
    """

    def __init__(self, declared: Mapping[str, Effect], shared: Shared, journal: Journal | None) -> None:
        """
        Args:
            declared: the effects that the function asks for, by name.
            shared: see `Shared`.
            journal: see `journal`.
        """
        self.journal = journal
        self._declared = declared
        self._shared = shared
        self._around: Surroundings | None = None

    def enter(self, around: Surroundings) -> None:
        """A recovery begins."""
        self._around = around

    @property
    def around(self) -> Surroundings:
        """
        What the last recovery has said.

        Raises:
            RecoveryError: the task has not recovered yet, so its journal may have answers that are not known here.
        """
        if self._around is None:
            raise RecoveryError(
                "a function made a call before its task has recovered: an earlier answer to it would not be found. "
                "This is a defect of cues-kafka; nothing was called. Report it, and start the task again"
            )
        return self._around

    def mark_end(self) -> int:
        """
        Write to the journal, and give the offset: what was acknowledged before stands below it, on any leader.

        Raises:
            BrokerError: the cluster does not answer.
        """
        assert self.journal is not None
        return self._shared.send(
            self.around.broker, (self.journal.topic, self.journal.partition, BARRIER, b"", None, 0)
        )

    def begin(self, consumed: Sequence[Coordinates], hash_: Callable[[], str], replay: int) -> Delivery:
        """The function is called for these messages next."""
        delivery = Delivery(show_origin(consumed), hash_, replay)
        for name, one in self._declared.items():
            if isinstance(one, Http):
                journal = self.journal if one.journal else None
                delivery.values[name] = HttpCalls(self, delivery, name, self._shared.servers[name], journal)
            elif isinstance(one, Once):
                assert self.journal is not None
                made = partial(_once_later if self._shared.side_by_side else _once, self, delivery, name)
                delivery.values[name] = made
        return delivery

    def ended(self, consumed: Sequence[Coordinates]) -> tuple[list[tuple[Any, ...]], int]:
        """
        What the batch of a step that has ended writes: records that delete its entries; and the bytes of the entries,
        which are in memory until the batch is committed.
        """
        if (journal := self.journal) is None:
            return [], 0
        step = show_origin(consumed)
        return self._deleting(journal.keys_of(step)), journal.size_of(step)

    def leftovers(self) -> list[tuple[Any, ...]]:
        """Records that delete entries of steps that were committed without them."""
        return [] if self.journal is None else self._deleting(self.journal.leftovers)

    def _deleting(self, keys: Iterable[bytes]) -> list[tuple[Any, ...]]:
        assert self.journal is not None
        return [(self.journal.topic, self.journal.partition, key, None, None, 0) for key in keys]

    def committed(self, positions: Positions) -> None:
        """A batch is committed."""
        if self.journal is not None:
            self.journal.settle(positions)

    # What the functions' objects do

    def run(self, work: Callable[[], Any]) -> Any:
        """Do it now; or, for a coroutine, in a thread of its own, which it awaits."""
        shared = self._shared
        if not shared.side_by_side:
            return work()
        return _in_thread(work) if shared.threads else _at_once(work)

    def check_owner(self) -> None:
        """
        Raises:
            Fenced: the task belongs to another worker by now.
        """
        if self.around.given_up():
            raise Fenced

    def record(self, delivery: Delivery, call: bytes, entry: Answered, what: str) -> None:
        """
        Keep an answer, before the function gets it.

        Raises:
            AnswerTooLarge: it is.
            RetriableError: the cluster did not take it. The batch is void.
        """
        journal, around = self.journal, self.around
        assert journal is not None
        data = encode(entry)
        journal.fit(delivery.step, call, data, what)
        key = b"%b %b" % (delivery.step, call)
        around.point("before", RECORD)
        try:
            self._shared.send(around.broker, (journal.topic, journal.partition, key, data, None, 0))
        except BrokerError as error:
            delivery.outage = error
            raise RetriableError(f"{what}: the answer was not kept: {error}", code=error.code) from error
        journal.keep(delivery.step, call, data)  # behind the acknowledgement: the next owner must find what is kept
        around.point("after", RECORD)


class HttpCalls:
    """
    The server of an `Http`, for one step.

    Every method returns the `Response`; in an `async def` it is awaited. Requests are numbered in the order in which
    the step makes them, and the numbers are in the idempotency keys. So the function must make the same requests in the
    same order on every attempt; with a journal another request under the same number is refused.
    """

    __slots__ = ("_calls", "_delivery", "_journal", "_name", "_server")

    def __init__(self, calls: Calls, delivery: Delivery, name: str, server: Server, journal: Journal | None) -> None:
        self._calls = calls
        self._delivery = delivery
        self._name = name
        self._server = server
        self._journal = journal

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,  # as in httpx
        data: Mapping[str, Any] | bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """
        Ask the server.

        Args:
            method: GET, POST and so on.
            path: behind the address of the `Http`.
            json: a value that becomes the body, as JSON.
            data: the body itself, or a form as a mapping.
            headers: of this request, besides those of the `Http`.
            params: the query.

        Raises:
            CallUnanswered: the server does not answer, or says that it cannot now, for longer than `patience_s`.
            AnswerTooLarge: the answer is larger than `max_bytes`, or than the journal takes.
            CallChanged: an earlier attempt at this step asked something else in this place.
        """
        asked = {"json": json, "data": data, "headers": headers or {}, "params": params}
        return self._calls.run(partial(self._ask, self._delivery.number(), method.upper(), path, asked))

    def get(self, path: str, **asked: Any) -> Any:
        return self.request("GET", path, **asked)

    def post(self, path: str, **asked: Any) -> Any:
        return self.request("POST", path, **asked)

    def put(self, path: str, **asked: Any) -> Any:
        return self.request("PUT", path, **asked)

    def patch(self, path: str, **asked: Any) -> Any:
        return self.request("PATCH", path, **asked)

    def delete(self, path: str, **asked: Any) -> Any:
        return self.request("DELETE", path, **asked)

    def _ask(self, number: int, method: str, path: str, asked: Mapping[str, Any]) -> Response:
        delivery, calls = self._delivery, self._calls
        what = f"{self._name}: {method} {without_query(path)}"
        request = self._server.request(method, path, f"{delivery.hash()}.{delivery.replay}-{number}", asked)
        call, digest = delivery.call(str(number)), request.digest
        if self._journal is not None and (entry := self._journal.find(delivery.step, call)) is not None:
            if entry.digest != digest:
                raise CallChanged(
                    f"{what}: on an earlier attempt, call {number} of this step was another request, and the journal "
                    "has its answer. The function must make the same requests in the same order. Run the code of that "
                    "attempt until the step is delivered, or let it become an error message, which drops the answer"
                )
            return self._response(call, what, entry, kept=True)
        calls.check_owner()
        around = calls.around
        around.point("before", REQUEST)
        answer = self._server.ask(request, what, around.clock, around.wait, calls.check_owner)
        around.point("after", REQUEST)
        entry = Answered(digest, {"status": answer.status, "headers": answer.headers}, answer.body)
        if self._journal is not None:
            calls.record(delivery, call, entry, f"the answer to {what}")
        return self._response(call, what, entry, kept=False)

    def _response(self, call: bytes, what: str, entry: Answered, *, kept: bool) -> Response:
        journal, step = self._journal, self._delivery.step

        def refuse() -> None:
            if journal is not None:
                journal.refuse(step, call)

        return Response(entry.head["status"], entry.head["headers"], entry.body, kept, what, refuse)


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


def _in_thread(work: Callable[[], Any]) -> asyncio.Future[Any]:
    """
    Do it in a thread that does not keep the process alive. An executor's threads would be joined when it ends, however
    long their servers take to answer.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.cancelled():  # the step was given up
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def body() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  raised where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nothing awaits it any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=body, name="call", daemon=True).start()
    return future


def _found(calls: Calls, delivery: Delivery, name: str, key: str) -> tuple[bytes, Answered | None]:
    if delivery.over:
        raise RuntimeError("calls are valid only during the call of the function")
    if not isinstance(key, str) or not 0 < len(key) <= MOST_KEY:
        raise CallError(f"{name}({key!r:.60}, ...): the key is text of 1 to {MOST_KEY} characters")
    assert calls.journal is not None
    call = delivery.call(f"{name}:{key}")
    return call, calls.journal.find(delivery.step, call)


def _kept(calls: Calls, delivery: Delivery, call: bytes, what: str, result: Any) -> Any:
    """Keep a result; gives what another attempt will find."""
    calls.around.point("after", REQUEST)
    try:
        body = json.dumps(result, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError(f"{what}: the result is not JSON, so it cannot be kept: {error}") from None
    calls.record(delivery, call, Answered("", {}, body), f"the result of {what}")
    return json.loads(body)


def _once(calls: Calls, delivery: Delivery, name: str, key: str, fn: Callable[[], Any]) -> Any:
    """
    What `fn()` gave when it was first kept for this step.

    Args:
        calls: bound; so are the next two, and the function gives `key` and `fn`.
        delivery: the step.
        name: of the `Once`.
        key: tells several of a step apart.
        fn: is called where nothing is kept. Its result is anything that JSON has.

    Raises:
        CallError: JSON cannot hold the result, or the key is no text.
        AnswerTooLarge: the result is larger than the journal takes.
    """
    call, entry = _found(calls, delivery, name, key)
    if entry is not None:
        return json.loads(entry.body)
    calls.check_owner()
    calls.around.point("before", REQUEST)
    result = fn()
    if inspect.isawaitable(result):
        raise CallError(
            f"{name}({key!r}, ...): the result must be awaited. Write the processor's function as async def"
        )
    return _kept(calls, delivery, call, f"{name}({key!r}, ...)", result)


async def _once_later(calls: Calls, delivery: Delivery, name: str, key: str, fn: Callable[[], Any]) -> Any:
    """See `_once`; `fn` may be a coroutine function."""
    call, entry = _found(calls, delivery, name, key)
    if entry is not None:
        return json.loads(entry.body)
    calls.check_owner()
    calls.around.point("before", REQUEST)
    result = fn()
    if inspect.isawaitable(result):
        result = await result
    return await calls.run(partial(_kept, calls, delivery, call, f"{name}({key!r}, ...)", result))
