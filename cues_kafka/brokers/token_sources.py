"""Where tokens for OAUTHBEARER come from: a file that another program renews, or a server of tokens (OIDC).

Both are called by `tokens.Tokens`, once for all clients of a process. Standard library only.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from cues_kafka.errors import LoginError

TIMEOUT_S: Final = 10.0
"""How long a server of tokens may take."""

ANSWER_BYTES: Final = 1 << 20
"""The largest answer of such a server; a token is some kilobytes."""

LIFE_S: Final = 300.0
"""The life of a token whose server names none and which has no claim `exp`."""


def with_extensions(token: str, end: float, extensions: str) -> tuple[Any, ...]:
    """A token, the second of its end, and what a login by it tells besides (RFC 7628, 3.1), for the client."""
    if not extensions:
        return token, end
    return token, end, "", dict(one.split("=", 1) for one in extensions.split(","))


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, such as Kubernetes mounts it. The file is read again before the token ends."""

    path: str
    extensions: str = ""

    def __call__(self, _: str | None) -> tuple[Any, ...]:
        """
        The token, and the second of its end since 1970.

        Raises:
            LoginError: the file cannot be read, or holds no token with an end.
        """
        try:
            with open(self.path, encoding="utf-8") as file:  # noqa: PTH123 - a path that users gave, read at each call
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise LoginError(f"the token file {self.path!r} cannot be read: {why}. Mount it, or name another") from None
        end = end_of(token)
        if end is None:
            raise LoginError(
                f"the token file {self.path!r} holds no signed token (JWT) with a claim 'exp', so its end is not "
                "known. Write such a token there, or give a function: OAuthBearer(token=function)"
            )
        return with_extensions(token, end, self.extensions)

    def __str__(self) -> str:
        return f"the token file {self.path!r}"


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """A server of tokens, asked by OAuth 2's grant for programs (RFC 6749, 4.4)."""

    url: str
    client_id: str
    client_secret: str
    scope: str
    ca: str
    extensions: str = ""

    def __call__(self, _: str | None) -> tuple[Any, ...]:
        """
        A new token, and the second of its end since 1970.

        Raises:
            LoginError: the server refuses the client, or does not answer with a token.
            OSError: it cannot be reached.
        """
        asked = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        quoted = (urllib.parse.quote(part, safe="") for part in (self.client_id, self.client_secret))
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked by Oidc
            self.url,
            data=urllib.parse.urlencode(asked).encode(),
            headers={"Authorization": f"Basic {base64.b64encode(':'.join(quoted).encode()).decode()}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._context()) as answer:  # noqa: S310
                data = answer.read(ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise
            raise LoginError(f"{self} refuses the client {self.client_id!r}: {_reason(error)}") from None
        if len(data) > ANSWER_BYTES:
            raise LoginError(f"{self} answers with more than {ANSWER_BYTES:,} bytes. Give its token endpoint as url=")
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        token = found.get("access_token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token:
            raise LoginError(f"{self} answers without an access_token. Give the address of its token endpoint as url=")
        life = found.get("expires_in")
        end = time.time() + float(life) if isinstance(life, int | float) else end_of(token)
        return with_extensions(token, end or time.time() + LIFE_S, self.extensions)

    def _context(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        inline = self.ca if "-----BEGIN" in self.ca else None
        return ssl.create_default_context(cafile=None if inline else self.ca or None, cadata=inline)

    def __str__(self) -> str:
        return f"the server of tokens at {self.url}"

    __repr__ = __str__


def _reason(error: urllib.error.HTTPError) -> str:
    """The status, and the error's name from the answer (RFC 6749, 5.2)."""
    try:
        name = json.loads(error.read(ANSWER_BYTES)).get("error")
    except (ValueError, AttributeError, OSError):
        name = None
    return f"{name} (status {error.code})" if isinstance(name, str) and len(name) < 80 else f"status {error.code}"


def end_of(token: str) -> float | None:
    """When a token ends: its claim `exp`, in seconds since the epoch. None: it is no JWT, or has no such claim."""
    _, _, rest = token.partition(".")
    payload = rest.partition(".")[0]
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    return float(end) if isinstance(end, int | float) else None
