"""The address of another broker, which shows in no text, and how a connection to it is encrypted."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from typing import ClassVar, Final, Self
from urllib.parse import unquote, urlsplit

from cues_kafka.errors import ConfigError, GraphError

MASK: Final = "***"


class BrokerAddress:
    """
    What an address is made of.

    Attributes:
        kind: name of the declaration, such as `Mqtt`.
        ports: the schemes of addresses, and the port that each has by default.
        secure: the schemes with TLS.
        example: an address with a user.
        plain: one without, for those who have set none.
        form: what an address looks like, in sentences.
        login: user and password by default; None: none.
        host, port: of the broker.
        encrypted: whether the connection has TLS.
        user, password: of the login; None: none.
        path: what follows the host, without the first `/`.
        ca, cert: the files for TLS that `tls` has read; empty: none.

    Raises:
        GraphError: the text is not an address; the message does not show it.
    """

    kind: ClassVar[str]
    ports: ClassVar[Mapping[str, int]]
    secure: ClassVar[frozenset[str]]
    example: ClassVar[str]
    plain: ClassVar[str]
    form: ClassVar[str]
    login: ClassVar[str | None] = None

    def __init__(self, url: str, where: str) -> None:
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            port = parts.port
        except ValueError:
            raise GraphError(
                f"{where}: the host or the port in the address cannot be read. Write {self.example}; "
                "in a user name and a password write %2F for '/', %3A for ':', %40 for '@' and %23 for '#'."
            ) from None
        self.path: str = parts.path.removeprefix("/")
        self.ca: str = ""
        self.cert: str = ""
        if (
            parts.scheme not in self.ports
            or not parts.hostname
            or not self.takes_path(self.path)
            or parts.query
            or parts.fragment
        ):
            raise GraphError(f"{where}: the address is not of the form {self.form}")
        self.host: str = parts.hostname
        self.port: int = port or self.ports[parts.scheme]
        self.encrypted: bool = parts.scheme in self.secure
        self.user: str | None = self.login if parts.username is None else unquote(parts.username)
        self.password: str | None = self.login if parts.password is None else unquote(parts.password)
        words = {url, parts.netloc, parts.hostname, parts.username, parts.password, self.user, self.password}
        self._words = sorted((one for one in words - {self.login} if one), key=len, reverse=True)

    @property
    def with_tls(self) -> str:
        """The scheme with TLS."""
        return next(one for one in reversed([*self.ports]) if one in self.secure)

    @property
    def without_tls(self) -> str:
        """The scheme without TLS."""
        return next(one for one in reversed([*self.ports]) if one not in self.secure)

    @staticmethod
    def takes_path(path: str) -> bool:
        """Whether an address may have this behind the host."""
        return not path.strip("/")

    @classmethod
    def declared(cls, url: str, env: str) -> Self:
        """
        The address that a declaration gives, or the environment variable that it names.

        Raises:
            ConfigError: the variable is not set, or the text is not an address.
        """
        where = f"{cls.kind}(env={env!r})" if env else f"{cls.kind}(...)"
        if not (found := url or os.environ.get(env, "")):
            raise ConfigError(
                f"{where}: the environment variable {env} is not set. Set it to the address of the broker: {cls.plain}"
            )
        try:
            return cls(found, where)
        except GraphError as error:
            raise ConfigError(str(error)) from None

    @classmethod
    def check(cls, url: object, env: object, variable: str) -> None:
        """
        Check what a declaration has of an address.

        Args:
            url: the address; empty: `env` has it.
            env: name of an environment variable; empty: none.
            variable: a name for the example.

        Raises:
            GraphError: both are given or none is, or the text is not an address.
        """
        if not (isinstance(url, str) and isinstance(env, str)) or bool(url) == bool(env):
            raise GraphError(
                f'{cls.kind}() takes an address, {cls.kind}("{cls.plain}"), or the name of the environment variable '
                f'that holds it, {cls.kind}(env="{variable}").'
            )
        if url:
            cls(url, f"{cls.kind}(...)")

    def quiet(self, text: object) -> str:
        """A text without the parts of the address."""
        said = str(text)
        for word in self._words:
            said = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", MASK, said)
        return " ".join(said.split())

    def tls(self, ca: str, cert: str, cert_key: str) -> ssl.SSLContext | None:
        """
        How the connection is encrypted; None: it is not.

        Args:
            ca: file in PEM form with who signs brokers; empty: the system decides whom to trust.
            cert: file in PEM form with our own certificate; empty: none.
            cert_key: the same with its key; empty: it is in `cert`.

        Raises:
            ConfigError: a file cannot be read.
        """
        if not self.encrypted:
            return None
        try:
            context = ssl.create_default_context(cafile=ca or None)
            if cert:
                context.load_cert_chain(cert, cert_key or None)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(one for one in (ca, cert, cert_key) if one)
            raise ConfigError(f"{self.kind}(...): {files} cannot be read for TLS: {error}") from None
        self.ca, self.cert = ca, cert
        return context
