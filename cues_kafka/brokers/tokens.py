"""Tokens for OAUTHBEARER from the user's function: one token for all clients of a process.

Each client asks for its own, and a worker has several clients for each task: each start would ask a token service
dozens of times. Imports no client library.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Final

from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.security import OAuthBearer
from cues_kafka.brokers.token_sources import TokenFile
from cues_kafka.errors import ConfigError, LoginError, RetriableError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.broker")

REPEAT_S: Final = 10.0
"""A client that got no token asks again after this time (librdkafka). One log line stands for all clients."""

FRESH: Final = 0.5
"""A token is given out until this share of its life is left.

A client asks for the next token when 80 % of the remaining life are over, and looks once a second. If the brokers end
logins with their tokens, it logs in again at 90 %. So it has the next token in time if a tenth of the remaining life is
more than a second: with a half, for all tokens that live for 20 s.
"""


class Tokens:
    """The function of one `oauth_cb` (see `Kafka.oauth`), called only when its token is too old. Threads may share it.

    `key` names these tokens in all processes; without one they are new.
    """

    def __init__(self, function: Callable[[Any], Any], key: str = "") -> None:
        self._function = function
        # Guards the next two. Held while the user's function runs, so that clients that ask at once get one token.
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[Any, float]] = {}
        self._logged_s = -REPEAT_S
        self._key = key or uuid.uuid4().hex

    def __reduce__(self) -> Any:
        """Pickle the function and the key: a process that unpickles them many times still asks for one token."""
        return _restored, (self._key, self._function)

    def __call__(self, config: str | None) -> Any:
        """
        The function's token, with the second of its end since 1970.

        Raises:
            LoginError: the function returned an expired token, or none.
            RetriableError: the function raised; see the cause.
        """
        with self._lock:
            token, until_s = self._tokens.get(config or "", (None, 0.0))
            if time.time() < until_s:
                return token
            token = self._ask(config)
            now = time.time()
            if token[1] <= now:
                raise LoginError(
                    f"oauth: {self._name} gave a token that expired {now - token[1]:.0f} s ago. Return the token and "
                    "the second of its end since 1970"
                )
            self._tokens[config or ""] = token, token[1] - FRESH * (token[1] - now)
            return token

    def _ask(self, config: str | None) -> Any:
        try:
            token = self._function(config)
        except LoginError as error:  # of one of our own sources, with its remedy
            self._log_failure(config, error)
            raise
        except Exception as error:
            self._log_failure(config, error)
            raise RetriableError(
                f"oauth: {self._name} gave no token, it raised {type(error).__name__}: see the cause",
                code="_AUTHENTICATION",
            ) from error
        if not isinstance(token, tuple) or len(token) < 2 or not isinstance(token[1], int | float):
            raise LoginError(
                f"oauth: {self._name} returned {type(token).__name__}. Return the token and the second of its end "
                "since 1970, as a tuple"
            )
        return token

    def _log_failure(self, config: str | None, error: Exception) -> None:
        """Log what the function raised in a process that had a token: the client that asks hides it."""
        now = time.monotonic()
        if (config or "") in self._tokens and now - self._logged_s >= REPEAT_S:
            self._logged_s = now
            raised = f"{type(error).__name__}: {error}"
            log.error("no token", oauth=self._name, raised=raised, again_in_s=REPEAT_S)

    @property
    def _name(self) -> str:
        qualified = getattr(self._function, "__qualname__", None)
        return f"{self._function.__module__}:{qualified}" if qualified else str(self._function)


_restored_tokens: dict[str, Tokens] = {}


def _restored(key: str, function: Callable[[Any], Any]) -> Tokens:
    return _restored_tokens.setdefault(key, Tokens(function, key))  # one step, also for other threads


def portable(options: Kafka) -> Kafka:
    """
    The options for other processes: they hold secrets, not the names of files and variables, and the function of
    tokens, not the name of a module to import. A file of tokens stays one, because its token ends.

    Raises:
        ConfigError: the function does not exist, or a secret is not in its place.
    """
    if options.security is not None:
        security = options.security.resolved()
        if isinstance(security, OAuthBearer) and security.token:
            security = replace(security, token=tokens_of(security.token))
        return options if security == options.security else replace(options, security=security)
    given = options.oauth or options.config.get("oauth_cb")
    if given is None:
        return options
    return replace(options, oauth="", config={**options.config, "oauth_cb": tokens_of(given)})


def read_again(options: Kafka) -> Kafka:
    """
    The options to try a login that was changed: a file of tokens is read again, although the process has a token of it.

    Else what is tried would be the former token, until half of its life is over.
    """
    security = options.security
    if not isinstance(security, OAuthBearer) or not security.file:
        return options
    file = TokenFile(security.file, str(security.extensions))
    return replace(options, security=replace(security, file="", extensions="", token=Tokens(file)))


_making = threading.RLock()  # guards `_made`; a module that is imported under it may open clients, which ask again


def tokens_of(oauth: str | Tokens | Callable[[Any], Any]) -> Tokens:
    """
    The tokens of a function, or of its place ``module:function``, for the whole process.

    Raises:
        ConfigError: the function does not exist.
    """
    if isinstance(oauth, Tokens):
        return oauth
    with _making:  # two threads that ask first at the same time get the same
        return _made(oauth)


@cache
def _made(oauth: str | Callable[[Any], Any]) -> Tokens:
    if not isinstance(oauth, str):
        return Tokens(oauth)
    module, _, name = oauth.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"oauth={oauth!r} names no function: {error}. Write 'module:function'") from error
    if not callable(function):
        raise ConfigError(f"oauth={oauth!r} is {type(function).__name__}, not a function")
    return Tokens(function)
