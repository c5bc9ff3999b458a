"""
How an open page comes back after a restart of the view, whose token is new.

A page that may look gets a pass: a key for its memory. After a restart it signs the challenge of the new process with
this key, and gets the new cookie. Neither the key nor what signs the next challenge goes over the connection again. So
another program that takes the port while the view is down learns nothing that opens the next view.

The keys are made from a secret of this user (`memory`), so the view keeps no list of them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LASTS_S: Final = 86_400.0
"""How long a page can come back after it has got its pass. It gets a new one every hour while the view runs."""

SECRET: Final = 32
"""Bytes of a secret: those of the hash."""


@dataclass(frozen=True, slots=True)
class Pass:
    """
    What a page keeps in its memory.

    Attributes:
        id: when the pass ends, and a random part.
        key: in hexadecimal; it signs challenges.
    """

    id: str
    key: str


class Passes:
    """
    Gives passes, and knows them again.

    Args:
        secret: what their keys are made from; the same one after a restart.
        clock: seconds since the epoch.

    Attributes:
        challenge: what a page that comes back signs; new with each process.
    """

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self.challenge = secrets.token_urlsafe(24)
        self._secret, self._clock = secret, clock

    def issue(self) -> Pass:
        """A new pass, for a page that may look."""
        name = f"{int(self._clock() + LASTS_S)}.{secrets.token_urlsafe(12)}"
        return Pass(name, self._key(name).hex())

    def accepts(self, name: str, proof: str, place: str) -> bool:
        """
        Whether a page has a pass of this secret that has not ended.

        Args:
            name: the id of its pass.
            proof: the challenge and the place, signed with the key of the pass, in hexadecimal.
            place: host and port of the page, as its browser says them.
        """
        end = name.partition(".")[0]
        if not (end.isascii() and end.isdecimal() and len(end) < 13 and self._clock() < int(end)):
            return False
        signed = hmac.digest(self._key(name), f"{self.challenge}\n{place}".encode(), hashlib.sha256)
        return hmac.compare_digest(signed.hex().encode(), proof.encode(errors="replace"))

    def _key(self, name: str) -> bytes:
        return hmac.digest(self._secret, f"pass {name}".encode(errors="replace"), hashlib.sha256)
