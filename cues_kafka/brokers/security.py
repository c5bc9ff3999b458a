"""How clients log in to brokers and encrypt their connections, as typed values for `Kafka(..., security=...)`.

Each value knows the settings of librdkafka that it stands for. Secrets may stay in a file or a variable until a client
is opened (`Secret`), and no text shows them. Standard library only.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from cues_kafka.arguments import known_arguments
from cues_kafka.brokers.secrets import MASK, without_user
from cues_kafka.brokers.token_sources import ClientCredentials, TokenFile
from cues_kafka.errors import ConfigError
from cues_kafka.graph.names import hint, quoted

_PEM: Final = "-----BEGIN"


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True)
class Secret:
    """
    A secret that stays in its place, and is read each time a client is opened.

    Attributes:
        env: the variable of the environment that holds it.
        file: the file that holds it; a newline at its end is left out.

    Raises:
        ConfigError: neither or both are given.
    """

    _: KW_ONLY
    env: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        if bool(self.env) == bool(self.file):
            raise ConfigError("Secret(...) takes either env='VARIABLE' or file='PATH'")

    def read(self) -> str:
        """
        The secret itself.

        Raises:
            ConfigError: there is no such variable, or the file cannot be read.
        """
        found = self._find()
        if found not in _read:
            _read.append(found)
        return found

    def _find(self) -> str:
        if self.env:
            if self.env not in os.environ:
                raise ConfigError(f"the environment has no variable {self.env!r}. Set it, or name another.")
            return os.environ[self.env]
        try:
            return Path(self.file).read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"the file {self.file!r} cannot be read: {why}. Mount it, or name another.") from None


_read: list[str] = []


def read_secrets() -> dict[str, str]:
    """
    All secrets that this process has read from their places, as settings that are masked.

    A client that was opened with an older one may still name it.
    """
    return {f"secret.{number}": text for number, text in enumerate([*_read])}


Text: TypeAlias = str | Secret
"""A secret, or where it is."""

Pem: TypeAlias = str | Path | Secret
"""The path of a PEM file, or the text of one, or where that text is."""


Read: TypeAlias = Callable[[Pem], str]


def _text(value: Pem) -> str:
    return value.read() if isinstance(value, Secret) else str(value)


def _masked(value: Pem) -> str:
    return MASK if isinstance(value, Secret) else str(value)


class Security:
    """What `Kafka(security=...)` takes: `Tls`, `Plain`, `Scram`, `OAuthBearer` or `Oidc`."""

    __slots__ = ()
    _HIDDEN: ClassVar[frozenset[str]] = frozenset()

    def settings(self, read: Read = _text) -> dict[str, Any]:
        """
        The settings of librdkafka, with the secrets as `read` gives them.

        Raises:
            ConfigError: a secret is not in its place.
        """
        raise NotImplementedError

    def outline(self) -> dict[str, Any]:
        """The same without a look at files and variables."""
        return self.settings(_masked)

    def resolved(self) -> Self:
        """The same with the secrets themselves, for processes that do not have these files and variables."""
        found: dict[str, Any] = {}
        for one in fields(self):  # type: ignore[arg-type]  # each subclass is a dataclass
            value = getattr(self, one.name)
            if isinstance(value, Secret):
                found[one.name] = value.read()
            elif isinstance(value, Security):
                found[one.name] = value.resolved()
        return replace(self, **found) if found else self  # type: ignore[type-var]

    def __repr__(self) -> str:
        """Every value that is set; secrets and pasted keys are masked."""
        shown = []
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if value != one.default and one.name != "_":
                shown.append(f"{one.name}={_shown(value, hidden=one.name in self._HIDDEN)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _shown(value: Any, *, hidden: bool) -> str:
    if isinstance(value, str) and (hidden or _PEM in value):
        return MASK
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, Security | Secret) or value is None:
        return repr(value)
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', type(value).__name__)}"


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class Tls(Security):
    """
    Encrypted connections; with a certificate of its own the client logs in by it (mutual TLS).

    Each of `ca`, `certificate` and `key` is the path of a PEM file, or the text of one.

    Attributes:
        ca: certificates of the authorities that sign the brokers' certificates. Empty: those of the system.
        certificate: the client's certificate, with those between it and the authority.
        key: the key of `certificate`.
        key_password: opens an encrypted `key`.

    Raises:
        ConfigError: one of `certificate` and `key` is missing, or a text is no PEM.
    """

    _HIDDEN: ClassVar = frozenset({"key_password"})

    _: KW_ONLY
    ca: Pem = ""
    certificate: Pem = ""
    key: Pem = ""
    key_password: Text = ""

    def __post_init__(self) -> None:
        for name in ("ca", "certificate", "key"):
            value = getattr(self, name)
            if isinstance(value, Path):
                object.__setattr__(self, name, str(value))
        if bool(self.certificate) != bool(self.key):
            given, missing = ("certificate", "key") if self.certificate else ("key", "certificate")
            raise ConfigError(f"Tls({given}=...) needs {missing}=..., too: a client logs in with both, or with neither")
        if self.key_password and not self.key:
            raise ConfigError("Tls(key_password=...) is the password of a key. Give key= and certificate=, too")
        for name, kind in (("ca", "CERTIFICATE"), ("certificate", "CERTIFICATE"), ("key", "PRIVATE KEY")):
            value = getattr(self, name)
            if isinstance(value, str) and _PEM in value and f"{kind}-----" not in value:
                raise ConfigError(f"Tls({name}=...) has no {kind} in its text; give a PEM file, or the text of one")

    def settings(self, read: Read = _text) -> dict[str, Any]:
        found: dict[str, Any] = {"security.protocol": "SSL"}
        for name in ("ca", "certificate", "key"):
            if value := read(getattr(self, name)):
                found[f"ssl.{name}.{'pem' if _PEM in value else 'location'}"] = value
        if self.key_password:
            found["ssl.key.password"] = read(self.key_password)
        return found


def _sasl(mechanism: str, tls: Tls | None, read: Read) -> dict[str, Any]:
    if tls is None:
        return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": mechanism}
    return {**tls.settings(read), "security.protocol": "SASL_SSL", "sasl.mechanisms": mechanism}


def _check_tls_of(value: Security, tls: Any) -> None:
    if tls is not None and not isinstance(tls, Tls):
        raise ConfigError(f"{type(value).__name__}(tls=...) takes Tls(...), or None for connections without encryption")


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class Plain(Security):
    """
    User name and password by SASL PLAIN, which sends the password as it is.

    Attributes:
        user: the user's name.
        password: the password, or where it is.
        tls: how connections are encrypted; None: they are not.
    """

    _HIDDEN: ClassVar = frozenset({"password"})

    user: str
    password: Text
    _: KW_ONLY
    tls: Tls | None = field(default=Tls())

    def __post_init__(self) -> None:
        _check_login(self, self.user, self.password)
        _check_tls_of(self, self.tls)

    def settings(self, read: Read = _text) -> dict[str, Any]:
        login = {"sasl.username": self.user, "sasl.password": read(self.password)}
        return {**_sasl("PLAIN", self.tls, read), **login}


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class Scram(Security):
    """
    User name and password by SASL SCRAM, which never sends the password.

    Attributes:
        user: the user's name.
        password: the password, or where it is.
        mechanism: the hash that the cluster has of the password.
        tls: how connections are encrypted; None: they are not.
    """

    _HIDDEN: ClassVar = frozenset({"password"})

    user: str
    password: Text
    _: KW_ONLY
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256"] = "SCRAM-SHA-512"
    tls: Tls | None = field(default=Tls())

    def __post_init__(self) -> None:
        _check_login(self, self.user, self.password)
        if self.mechanism not in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
            raise ConfigError(f"Scram(mechanism=...) is SCRAM-SHA-512 or SCRAM-SHA-256, not {self.mechanism!r}")
        _check_tls_of(self, self.tls)

    def settings(self, read: Read = _text) -> dict[str, Any]:
        login = {"sasl.username": self.user, "sasl.password": read(self.password)}
        return {**_sasl(self.mechanism, self.tls, read), **login}


def _check_login(value: Security, user: str, password: Text) -> None:
    for name, one in (("user", user), ("password", password)):
        if not one:
            raise ConfigError(
                f"{type(value).__name__}(...) has an empty {name}. Give the {name} of a user of the cluster"
            )


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class OAuthBearer(Security):
    """
    Tokens by SASL OAUTHBEARER, from a function or a file. One token serves all clients of a process.

    Attributes:
        token: a function, or its place ``module:function``. It takes None, and returns the token and the second of its
            end since 1970.
        file: the file of a token (JWT) that another program renews, such as Kubernetes.
        extensions: what a login by a token of `file` tells besides, as a mapping or as ``name=value,name=value``. A
            function returns them itself: the token, its end, an empty text, and the mapping.
        tls: how connections are encrypted; None: they are not.

    Raises:
        ConfigError: neither or both of `token` and `file` are given, or an extension cannot be sent.
    """

    _: KW_ONLY
    token: str | Callable[[Any], Any] = ""
    file: str = ""
    extensions: str | Mapping[str, str] = ""
    tls: Tls | None = field(default=Tls())

    def __post_init__(self) -> None:
        if bool(self.token) == bool(self.file):
            raise ConfigError("OAuthBearer(...) takes either token=function or file='PATH' of a token")
        object.__setattr__(self, "extensions", _extensions(self, self.extensions))
        if self.token and self.extensions:
            raise ConfigError(
                "OAuthBearer(extensions=...) is for the token of a file. Return extensions from the function: "
                "the token, the second of its end, '' and {name: value}"
            )
        if isinstance(self.token, str) and self.token and ":" not in self.token:
            raise ConfigError("OAuthBearer(token=...) takes a function, or its place as 'module:function', no token")
        _check_tls_of(self, self.tls)

    def settings(self, read: Read = _text) -> dict[str, Any]:
        return {**_sasl("OAUTHBEARER", self.tls, read), "oauth_cb": self.token or self._file()}

    def _file(self) -> TokenFile:
        return TokenFile(self.file, str(self.extensions))


_EXTENSION: Final = re.compile(r"([A-Za-z]+)=([\x21-\x2b\x2d-\x7e]+)")
"""A name of letters, and a value without blanks and commas (RFC 7628, 3.1, and librdkafka)."""


def _extensions(value: Security, given: str | Mapping[str, str]) -> str:
    """Extensions of a login as librdkafka writes them."""
    pairs = given.split(",") if isinstance(given, str) else [f"{name}={one}" for name, one in given.items()]
    pairs = [pair.strip() for pair in pairs if pair.strip()]
    for pair in pairs:
        found = _EXTENSION.fullmatch(pair)
        if found is None or found[1] == "auth":
            raise ConfigError(
                f"{type(value).__name__}(extensions=...) cannot send {pair!r}: write name=value, with a name of "
                "letters other than auth, and a value without blanks and commas"
            )
    return ",".join(pairs)


@known_arguments(ConfigError)
@dataclass(frozen=True, slots=True, repr=False)
class Oidc(Security):
    """
    Tokens by SASL OAUTHBEARER, from a server of tokens (OIDC, client credentials).

    The server is asked once for all clients of a process, and again when half of the token's life is over.

    Attributes:
        url: the server's token endpoint.
        client_id: the name of this program there.
        client_secret: its secret, or where it is.
        scope: what the token shall be good for, if the server wants to know.
        extensions: what a login tells the brokers besides its token, as a mapping or as ``name=value,name=value``.
        ca: PEM file, or its text, of the authorities that sign the server's certificate. Empty: those of the system.
        tls: how connections to the brokers are encrypted; None: they are not.

    Raises:
        ConfigError: `url` is not an address, the secret would travel unencrypted, or an extension cannot be sent.
    """

    _HIDDEN: ClassVar = frozenset({"client_secret"})

    url: str
    client_id: str
    client_secret: Text
    _: KW_ONLY
    scope: str = ""
    extensions: str | Mapping[str, str] = ""
    ca: Pem = ""
    tls: Tls | None = field(default=Tls())

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"Oidc(url={without_user(self.url)!r}) is not an address; write https://host/path/token")
        if parts.username:
            raise ConfigError("Oidc(url=...) holds a login: write it as client_id= and client_secret=")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ConfigError(
                f"Oidc(url={self.url!r}) would send client_secret over the network unencrypted: use https://"
            )
        for name in ("client_id", "client_secret"):
            if not getattr(self, name):
                raise ConfigError(
                    f"Oidc(...) has an empty {name}. Give what the server of tokens knows of this program"
                )
        if isinstance(self.ca, Path):
            object.__setattr__(self, "ca", str(self.ca))
        object.__setattr__(self, "extensions", _extensions(self, self.extensions))
        _check_tls_of(self, self.tls)

    def settings(self, read: Read = _text) -> dict[str, Any]:
        secret, extensions = read(self.client_secret), str(self.extensions)
        source = ClientCredentials(self.url, self.client_id, secret, self.scope, read(self.ca), extensions)
        return {**_sasl("OAUTHBEARER", self.tls, read), "oauth_cb": source}


TYPES: Final[dict[str, type[Security]]] = {
    "tls": Tls,
    "plain": Plain,
    "scram": Scram,
    "oauthbearer": OAuthBearer,
    "oidc": Oidc,
}
"""The values of `type` in the table ``[security]``."""

_TLS_KEYS: Final = ("ca", "certificate", "key", "key_password")


def security_of(table: Mapping[str, Any]) -> Security | None:
    """
    The value of a table ``[security]``: `type`, the fields of that type, and those of `Tls` beside them.

    ``tls = false`` leaves connections without encryption. In a table for `oidc`, `ca` is for both the brokers and the
    server of tokens.

    Raises:
        ConfigError: a field is missing or not known.
    """
    if not table:
        return None
    rest = dict(table)
    kind = str(rest.pop("type", "")).lower()
    if kind not in TYPES:
        raise ConfigError(f"[security] needs a type, one of {quoted(TYPES)}{hint(kind, TYPES) if kind else ''}")
    made = TYPES[kind]
    own = {one.name: one for one in fields(made) if one.name not in ("_", "tls")}  # type: ignore[arg-type]
    known = [*own, *(() if made is Tls else ("tls", *_TLS_KEYS))]
    if unknown := sorted(rest.keys() - set(known)):
        raise ConfigError(
            f"[security] of type {kind!r} has no setting {unknown[0]!r}{hint(unknown[0], known)}. "
            f"Known: {quoted(known)}"
        )
    for name in own:
        if name not in rest and name in ("user", "password", "url", "client_id", "client_secret"):
            raise ConfigError(f"[security] of type {kind!r} lacks {name}. Add {name} = ...")
    given = {name: rest[name] for name in own if name in rest}
    if made is not Tls:
        tls = {name: rest[name] for name in _TLS_KEYS if name in rest}
        on = str(rest.get("tls", True)).lower() not in ("false", "0", "no", "off")
        if tls and not on:
            raise ConfigError("[security] has tls = false and certificates, too. Leave out one of them")
        given["tls"] = Tls(**tls) if on else None
    return made(**given)


_SHOWN_KEYS: Final = frozenset(
    "type user mechanism url client_id scope extensions tls ca certificate key file token".split()  # noqa: SIM905
)


def shown_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table ``[security]`` that may be printed."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Secret):
            found[name] = {"env": value.env} if value.env else {"file": value.file}
        elif name in _SHOWN_KEYS and not (isinstance(value, str) and ("\n" in value or _PEM in value)):
            found[name] = without_user(value) if name == "url" else value
        else:
            found[name] = MASK
    return found


def is_loopback(host: str) -> bool:
    """Whether the host is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
