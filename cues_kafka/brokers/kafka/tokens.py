"""Tokens for OAUTHBEARER from the user's function: one for all clients of a process.

Each client asks for its own, and a worker has several for each task: a token service would be asked dozens of times at
every start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

from cues_kafka.errors import ConfigError, LoginError, RetriableError

FRESH: Final = 0.25
"""A token is given out until a quarter of its life is left; a client asks for the next one at a fifth."""


class Tokens:
    """The function of one `oauth_cb`, called as rarely as tokens end. May be shared by threads."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        """
        Args:
            function: see `Kafka.oauth`.
        """
        self._function = function
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Any, float]] = {}

    def __call__(self, config: str | None) -> Any:
        """
        A token that is good for a while, with its end.

        Raises:
            LoginError: the function gives a token that has expired, or none.
            RetriableError: it raised; with what it raised as the cause.
        """
        with self._lock:
            token, until_s = self._held.get(config or "", (None, 0.0))
            if time.time() < until_s:
                return token
            token = self._asked(config)
            now = time.time()
            if token[1] <= now:
                raise LoginError(
                    f"oauth: {self._name} gave a token that expired {now - token[1]:.0f} s ago. Return the token and "
                    "the second of its end since 1970"
                )
            self._held[config or ""] = token, token[1] - FRESH * (token[1] - now)
            return token

    def _asked(self, config: str | None) -> Any:
        try:
            token = self._function(config)
        except Exception as error:
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

    @property
    def _name(self) -> str:
        return f"{self._function.__module__}:{getattr(self._function, '__qualname__', self._function)}"


@cache
def tokens_of(oauth: str | Callable[[Any], Any]) -> Tokens:
    """
    The tokens of a function, for the whole process.

    Args:
        oauth: the function, or where it is: ``module:function``.

    Raises:
        ConfigError: there is no such function.
    """
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
