"""Calls of servers, and of anything else, that a processor's function makes: `Http` and `Once` (E4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from cues_kafka.arguments import known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.extras import HTTPX2, Package
from cues_kafka.graph.effects import Effect
from cues_kafka.graph.levels import EXACTLY_ONCE, JOURNALED_SERVER, KEY_HEADER, ONCE, SERVER, EdgeKind
from cues_kafka.graph.names import quoted

MOST_BYTES: Final = 1_000_000
"""The largest answer that is taken, in bytes. With a journal its topic may bound it further."""


@known_arguments()
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Http(Effect):
    """
    A server that a processor's function calls (E4).

    The function gets an object with `get`, `post`, `put`, `patch`, `delete` and `request` under the name that it is
    declared with. In an `async def` each of them is awaited.

    Each request that may change something carries an idempotency key, which is the same on every attempt at the step.
    With `journal=True` each answer is kept in the journal topic of the processor before the function gets it. Another
    attempt at the step finds it there, and does not call.

    The address shows in no text that the project prints: no plan, no log, no `repr`.

    Attributes:
        base: ``https://pay.example/api``; the paths of requests come behind it.
        env: the environment variable that holds it; then `base` is empty.
        journal: whether answers are kept.
        idempotent: whether the server is known to do nothing when an idempotency key comes again. With `journal` the
            edge is then exactly once (docs/plan.md).
        timeout_s: how long one request may take to connect, to answer, and to send all of its body, in seconds each.
        patience_s: for how many seconds a request without an answer is repeated, before `CallUnanswered` is raised.
        max_bytes: the largest body of an answer that is taken, in bytes.
        headers: of each request, or a function that gives them, such as a login that changes.
        keep: names of headers of answers that are kept besides the usual ones.
        key_header: the name of the header with the idempotency key.
        transport: makes the httpx transport, for instance one with certificates of its own; None: the usual one.
    """

    kind: ClassVar[str] = "http"
    stepwise: ClassVar[bool] = True
    what: ClassVar[str] = "server"

    base: str = field(repr=False)
    env: str
    journal: bool
    idempotent: bool
    timeout_s: float
    patience_s: float
    max_bytes: int
    headers: Mapping[str, str] | Callable[[], Mapping[str, str]]
    keep: tuple[str, ...]
    key_header: str
    transport: Callable[[], Any] | None

    def __init__(
        self,
        base: str = "",
        *,
        env: str = "",
        journal: bool = False,
        idempotent: bool = False,
        timeout_s: float = 10.0,
        patience_s: float = 5.0,
        max_bytes: int = MOST_BYTES,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        keep: Iterable[str] = (),
        key_header: str = KEY_HEADER,
        transport: Callable[[], Any] | None = None,
    ) -> None:
        if bool(base) == bool(env):
            raise GraphError(
                'Http() takes an address, Http("https://pay.example/api"), or the name of the environment variable '
                'that holds it, Http(env="PAY_API").'
            )
        if base:
            check_base(base, "Http(...)")
        if not timeout_s > 0 or not patience_s >= 0 or max_bytes < 1:
            raise GraphError("Http(...): timeout_s and max_bytes are more than 0, and patience_s is not below it.")
        settings = {
            "base": base,
            "env": env,
            "journal": bool(journal),
            "idempotent": bool(idempotent),
            "timeout_s": float(timeout_s),
            "patience_s": float(patience_s),
            "max_bytes": max_bytes,
            "headers": {} if headers is None else headers,
            "keep": tuple(keep),
            "key_header": key_header,
            "transport": transport,
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Http(env={self.env!r}, journal={self.journal})" if self.env else f"Http(journal={self.journal})"

    def over(self, transport: Callable[[], Any]) -> Http:
        """The same over another transport, for tests. It needs no address."""
        settings = {name: getattr(self, name) for name in (*_WRITTEN, "keep", "headers", "base")}
        return Http(**{**settings, "base": self.base or "https://server.invalid", "env": "", "transport": transport})

    def packages(self) -> tuple[Package, ...]:
        return (HTTPX2,)

    @property
    def edge(self) -> EdgeKind:  # type: ignore[override]
        kind = JOURNALED_SERVER if self.journal else SERVER
        if self.journal and self.idempotent:
            kind = kind._replace(level=EXACTLY_ONCE, why=f"{kind.why}, which the server knows", remedy="")
        return kind._replace(why=kind.why.replace(KEY_HEADER, self.key_header))


@known_arguments()
@dataclass(frozen=True, slots=True)
class Once(Effect):
    """
    Something that a step does once, and whose result is kept (E4): an SDK, a mail, a random choice.

    The function gets `once(key, fn)` under the name that it is declared with. It calls `fn()`, keeps the result in the
    journal topic of the processor, and returns it. Another attempt at the step finds the result there, and does not
    call. In an `async def` it is awaited, and `fn` may be a coroutine function.
    """

    kind: ClassVar[str] = "once"
    stepwise: ClassVar[bool] = True
    what: ClassVar[str] = "calls"
    edge: ClassVar[EdgeKind] = ONCE


@dataclass(frozen=True, slots=True)
class Given(Effect):
    """
    An object that stands in for an effect in tests: the function gets it as it is.

    Attributes:
        value: the object.
    """

    kind: ClassVar[str] = "given"

    value: Any = None


def check_base(base: str, where: str) -> None:
    """
    Check the address of a server.

    Raises:
        GraphError: the text is no address; the message does not show it.
    """
    parts = urlsplit(base) if isinstance(base, str) else None
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise GraphError(f"{where}: the address is not of the form https://host/path, without a query.")


def journaled(targets: Mapping[str, Effect]) -> bool:
    """Whether answers or results of one of these effects are kept in a journal topic."""
    return any(isinstance(one, Once) or (isinstance(one, Http) and one.journal) for one in targets.values())


def check_calls(label: str, targets: Mapping[str, Effect], *, batch: bool | str) -> None:
    """
    Check the effects that must know their step.

    Raises:
        GraphError: the function gets lists, so the step of a call is not known.
    """
    found = [name for name, one in targets.items() if one.stepwise]
    if found and batch:
        raise GraphError(
            f"{label}: effects= has {quoted(found)} with batch={batch!r}: which message of the list a call is for is "
            "not known, so it has no idempotency key. Have the function take one message."
        )


def call_to_json(name: str, effect: Http | Once) -> dict[str, Any]:
    """
    How a graph that is written down has one of these effects.

    Raises:
        GraphError: its address or its headers would be in the text, or it has a transport.
    """
    if isinstance(effect, Once):
        return {"kind": effect.kind}
    if not effect.env or effect.headers or effect.transport is not None:
        raise GraphError(
            f"effects={{{name!r}: ...}} cannot be written down: its address and its headers would be in the text. Name "
            'the environment variable with the address, Http(env="PAY_API"), and give headers where the function calls.'
        )
    settings = {one: getattr(effect, one) for one in _WRITTEN}
    return {"kind": effect.kind, **settings, "keep": list(effect.keep)}


def call_from_json(data: Mapping[str, Any]) -> Http | Once:
    """Read what `call_to_json` wrote."""
    if data["kind"] == Once.kind:
        return Once()
    return Http(**{name: one for name, one in data.items() if name != "kind"})


_WRITTEN: Final = ("env", "journal", "idempotent", "timeout_s", "patience_s", "max_bytes", "key_header")
