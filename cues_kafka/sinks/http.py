"""One server: its connections, requests and answers, by httpx2 (E4)."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from cues_kafka.errors import AnswerTooLarge, CallError, CallUnanswered, ConfigError, GraphError
from cues_kafka.extras import HTTPX2, missing
from cues_kafka.graph.calls import Http, check_base
from cues_kafka.observe.log import get_logger
from cues_kafka.ports.clock import Clock
from cues_kafka.sinks.http_texts import leaves_base, retry_after_s, unsendable, without_query

try:
    import httpx2
except ImportError as error:  # pragma: no cover - the environment of the tests has it
    raise missing("Http(...)", HTTPX2, error=error) from None

log = get_logger("cues_kafka.sinks")

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing, and need no idempotency key."""

AWAY: Final = frozenset({429, 502, 503, 504})
"""Statuses by which a server, or what stands before it, says that it cannot answer now."""

KEPT: Final = frozenset(
    {"content-type", "content-language", "content-location", "etag", "last-modified", "link", "location", "retry-after"}
)
"""Headers of an answer that are kept. Others may be cookies, or differ with each answer."""

FIRST_S: Final = 0.1
MOST_S: Final = 2.0
"""The first pause before a request is repeated, and the longest one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """
    What a server is asked.

    Attributes:
        made: the request.
        digest: tells requests apart: of method, path, query and body. The server's address is not in it, nor are
            headers, which may be logins that change.
    """

    made: Any
    digest: str


class Server:
    """One server, for all tasks of a processor; threads may share it."""

    def __init__(self, declared: Http, name: str) -> None:
        """
        Args:
            declared: the server.
            name: how texts name it.

        Raises:
            ConfigError: the address is missing, or is none.
        """
        base = address(declared)
        parts = urlsplit(base)
        self._declared = declared
        self._name = name
        self._base = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._path = parts.path.rstrip("/").encode()
        self._secrets = sorted({base, self._base, parts.netloc, parts.hostname or ""} - {""}, key=len, reverse=True)
        self._login: dict[str, str] = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._login = {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        # The transport, and not a client: a client would log the address, keep cookies, and follow to other servers.
        self._transport: Any = declared.transport() if declared.transport is not None else httpx2.HTTPTransport()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def request(self, method: str, path: str, key: str, asked: Mapping[str, Any]) -> Asked:
        """
        Make a request.

        Raises:
            CallError: the path names another server, the body cannot be made, or a header is not the caller's to give.
        """
        declared, data = self._declared, asked["data"]
        if "://" in path or path.startswith("//"):
            raise CallError(
                f"{self._name}: {method} {without_query(path)!r:.80}: give the path only: Http(...) names the server"
            )
        if leaves_base(path):
            raise CallError(
                f"{self._name}: {method} {without_query(path)!r:.80}: a part of the path is `.` or `..`, which leads "
                "away from the address of the Http. If it comes from a message, check it, or pack it: "
                "urllib.parse.quote(part, safe='')"
            )
        given = declared.headers() if callable(declared.headers) else declared.headers
        headers = {**self._login, **given, **asked["headers"]}
        if declared.key_header.lower() in {name.lower() for name in headers}:
            raise CallError(f"{self._name}: {declared.key_header} is set by cues-kafka for each step. Leave it out")
        headers["Accept-Encoding"] = "identity"  # a small body may unpack to an endless one
        if method not in SAFE:
            headers[declared.key_header] = key
        body: dict[str, Any] = {"content": data} if isinstance(data, bytes | str) else {"data": data}
        timeout = httpx2.Timeout(declared.timeout_s).as_dict()
        try:
            made = httpx2.Request(
                method,
                f"{self._base}/{path.lstrip('/')}" if path else self._base,
                params=asked["params"],
                headers=headers,
                json=asked["json"],
                **body,
                extensions={"timeout": timeout},
            )
            content = made.read()
        except (TypeError, ValueError, httpx2.InvalidURL) as error:
            shown = without_query(path)
            raise CallError(self._without_address(f"{self._name}: {method} {shown}: {error}")) from None
        if why := unsendable(method, made.headers.raw):
            raise CallError(f"{self._name}: {method!r:.40} {without_query(path)!r:.80}: {why}")
        target = made.url.raw_path.removeprefix(self._path)
        digest = blake2b(b"%b %b\n%b" % (method.encode(), target, content), digest_size=16).hexdigest()
        return Asked(made, digest)

    def ask(
        self,
        request: Asked,
        what: str,
        clock: Clock,
        wait: Callable[[float], None],
        check: Callable[[], None],
    ) -> Reply:
        """
        Ask, and ask again while the server is away.

        Args:
            request: what.
            what: how texts name it.
            clock: time.
            wait: wait for these seconds.
            check: raises if the task was given up.

        Raises:
            CallUnanswered: there was no answer for longer than `patience_s`.
            AnswerTooLarge: the body is larger than `max_bytes`.
        """
        began_s, pause_s = clock.monotonic(), FIRST_S
        until_s = began_s + self._declared.patience_s
        while True:
            status: int | None = None
            asked_s: float | None = None
            try:
                answer = self._ask_once(request, what, clock)
                if answer.status not in AWAY:
                    return answer
                status, asked_s = answer.status, retry_after_s(answer.headers.get("retry-after"), clock)
                why = f"the server answered {status}"
            except (httpx2.TransportError, httpx2.StreamError) as error:
                why = self._without_address(f"{type(error).__name__}: {error}")
            pause_s = max(pause_s, asked_s or 0.0)
            if clock.monotonic() + pause_s > until_s:
                asks = f", and asks to wait {asked_s:g} s" if asked_s else ""
                raise CallUnanswered(
                    f"{what}: {why}{asks}; it was asked for {clock.monotonic() - began_s:.1f} s, and patience_s is "
                    f"{self._declared.patience_s:g}",
                    status=status,
                    retry_after_s=asked_s,
                )
            log.info("asking again", call=what, why=why, in_s=round(pause_s, 3))
            wait(pause_s)
            check()
            pause_s = min(pause_s * 2, MOST_S)

    def _ask_once(self, request: Asked, what: str, clock: Clock) -> Reply:
        most, until_s = self._declared.max_bytes, clock.monotonic() + self._declared.timeout_s
        response = self._transport.handle_request(request.made)
        try:
            coding = response.headers.get("content-encoding", "identity")
            if coding != "identity":
                raise CallError(f"{what}: the answer is compressed ({coding:.40}), which the request did not allow")
            body = bytearray()
            for chunk in response.stream:
                body += chunk
                if len(body) > most:
                    raise AnswerTooLarge(
                        f"{what}: the answer is larger than {most:,} bytes. Raise max_bytes= of the Http, or ask for "
                        "less"
                    )
                if clock.monotonic() > until_s:
                    raise httpx2.ReadTimeout(f"the body did not end within {self._declared.timeout_s:g} s")
        finally:
            response.close()
        kept = KEPT | {name.lower() for name in self._declared.keep}
        headers = {name: value for name, value in response.headers.items() if name in kept}
        return Reply(response.status_code, headers, bytes(body))

    def _without_address(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "the server")
        return text


def address(declared: Http) -> str:
    """
    The address of a server.

    Raises:
        ConfigError: the environment variable is not set, or holds no address.
    """
    if declared.base:
        return declared.base
    base = os.environ.get(declared.env, "")
    if not base:
        raise ConfigError(
            f"Http(env={declared.env!r}): the environment variable {declared.env} is not set. Set it to the address of "
            "the server: https://host/path"
        )
    try:
        check_base(base, f"Http(env={declared.env!r})")
    except GraphError as error:
        raise ConfigError(str(error)) from None
    return base
