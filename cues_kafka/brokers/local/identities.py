"""Users of a secured local broker: an authority, certificates, passwords, tokens, and the settings that use them.

All of it lies below the broker's own directory, which only its user can open, and goes with it. ``openssl`` makes keys
and certificates, because the standard library cannot.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from cues_kafka.brokers.local.properties import CONTROLLER, LOGIN, MUTUAL, TLS
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.security import OAuthBearer, Plain, Scram, Secret, Security, Tls
from cues_kafka.errors import BrokerError, ConfigError

Login: TypeAlias = Literal["scram", "plain", "oauthbearer", "tls"]
LOGINS: Final[tuple[Login, ...]] = get_args(Login)

USERS: Final = ("admin", "deployer", "worker", "sender", "client", "verifier", "operator")
"""The administrator, and a user for each role of ``plan --acls``."""

BROKER: Final = "broker"
"""The name in the certificates of the nodes."""

DAYS: Final = 365
"""The life of certificates and tokens."""

ISSUER, AUDIENCE, KEY_ID = "cues-kafka-local", "kafka", "local"

_CURVE: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_MODULES: Final = "org.apache.kafka.common.security"


class Identities:
    """The files of users, in a directory that `make` has filled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def make(cls, directory: Path) -> Identities:
        """
        Make all files.

        Raises:
            ConfigError: there is no ``openssl``.
            BrokerError: it failed; the text holds its output.
        """
        if shutil.which("openssl") is None:
            raise ConfigError(
                "A secured broker needs the program openssl, which makes its keys and certificates, and it is not on "
                "PATH. Install it: apt install openssl."
            )
        directory.mkdir(mode=0o700)
        made = cls(directory)
        made._authority()
        made._certificate(BROKER, names="subjectAltName=IP:127.0.0.1,DNS:localhost")
        made._token_key()
        for user in USERS:
            made._certificate(user, names="extendedKeyUsage=clientAuth")
            made._write(f"{user}.password", secrets.token_urlsafe(24))
            made._write(f"{user}.token", made.token(user, life_s=DAYS * 86_400.0))
        return made

    def path(self, name: str) -> str:
        """A file, such as ``ca.pem``, ``worker.pem``, ``worker.key``, ``worker.password`` or ``worker.token``."""
        return str(self.directory / name)

    def passwords(self) -> dict[str, str]:
        """The passwords, by user."""
        return {user: (self.directory / f"{user}.password").read_text("utf-8") for user in USERS}

    def security(self, user: str, login: Login = "scram") -> Security:
        """
        How a user logs in.

        Raises:
            ConfigError: there is no such user or login.
        """
        if user not in USERS or login not in LOGINS:
            raise ConfigError(
                f"The secured broker has the users {', '.join(USERS)}, who log in by {', '.join(LOGINS)}; not "
                f"{user!r} by {login!r}."
            )
        tls, password = Tls(ca=self.path("ca.pem")), Secret(file=self.path(f"{user}.password"))
        match login:
            case "scram":
                return Scram(user, password, tls=tls)
            case "plain":
                return Plain(user, password, tls=tls)
            case "oauthbearer":
                return OAuthBearer(file=self.path(f"{user}.token"), tls=tls)
            case "tls":
                return Tls(ca=tls.ca, certificate=self.path(f"{user}.pem"), key=self.path(f"{user}.key"))

    def kafka(self, listeners: Mapping[str, str], user: str, login: Login = "scram", **options: Any) -> Kafka:
        """The cluster for a user; `listeners` has the addresses by name, `options` go to `Kafka`."""
        return Kafka(listeners[listener_of(login)], security=self.security(user, login), **options)

    def context(self) -> ssl.SSLContext:
        """A context for connections as the administrator, by certificate."""
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        context.load_cert_chain(self.path("admin.pem"), self.path("admin.key"))
        return context

    def write_profiles(self, listeners: Mapping[str, str]) -> None:
        """Write a configuration file for each way to log in, with a profile for each user."""
        for login in LOGINS:
            self._write(f"{login}.toml", self._profiles(listeners[listener_of(login)], login))

    def _profiles(self, bootstrap: str, login: Login) -> str:
        lines = []
        for user in USERS:
            rows: dict[str, Any] = {"type": login, "ca": self.path("ca.pem")}
            if login in ("scram", "plain"):
                rows |= {"user": user, "password": {"file": self.path(f"{user}.password")}}
            elif login == "oauthbearer":
                rows["file"] = self.path(f"{user}.token")
            else:
                rows |= {"certificate": self.path(f"{user}.pem"), "key": self.path(f"{user}.key")}
            lines += [f"[profile.{user}]", f"bootstrap = {_toml(bootstrap)}", "", f"[profile.{user}.security]"]
            lines += [*(f"{key} = {_toml(value)}" for key, value in rows.items()), ""]
        return "\n".join(lines)

    def broker_settings(self) -> dict[str, str]:
        """Settings of a node: only ACLs give rights, and no connection is open to a client without a login."""
        users = " ".join(f'user_{user}="{password}"' for user, password in self.passwords().items())
        login = f"listener.name.{LOGIN.lower()}"
        return {
            "listener.security.protocol.map": f"{CONTROLLER}:SSL,{MUTUAL}:SSL,{TLS}:SSL,{LOGIN}:SASL_SSL",
            "inter.broker.listener.name": MUTUAL,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:admin;User:{BROKER}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.path(f"{BROKER}.both"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.path("ca.pem"),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            f"listener.name.{MUTUAL.lower()}.ssl.client.auth": "required",
            f"listener.name.{CONTROLLER.lower()}.ssl.client.auth": "required",
            f"{login}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256,OAUTHBEARER",
            f"{login}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
            f"{login}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{login}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{login}.oauthbearer.sasl.jaas.config": (
                f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{BROKER}";'
            ),
            f"{login}.oauthbearer.sasl.server.callback.handler.class": (
                f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            f"{login}.sasl.oauthbearer.jwks.endpoint.url": self._keys_url,
            f"{login}.sasl.oauthbearer.expected.issuer": ISSUER,
            f"{login}.sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def java_options(self) -> list[str]:
        """Options of the JVM: Kafka reads only the file of keys that is allowed to it."""
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys_url}"]

    @property
    def _keys_url(self) -> str:
        return (self.directory / "token-keys.json").as_uri()

    def token(self, user: str, *, life_s: float) -> str:
        """A signed token (JWT, RS256) of a user."""
        now = time.time()
        claims = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now) - 1, "exp": int(now + life_s)}
        parts = [{"alg": "RS256", "typ": "JWT", "kid": KEY_ID}, claims]
        signed = ".".join(_url_safe(json.dumps(part).encode()) for part in parts)
        signature = self._openssl("dgst", "-sha256", "-sign", "token.key", given=signed.encode())
        return f"{signed}.{_url_safe(signature)}"

    def _authority(self) -> None:
        self._openssl("req", "-x509", *_CURVE, "-keyout", "ca.key", "-out", "ca.pem", "-days", str(DAYS),
                      "-subj", "/CN=cues-kafka local authority")  # fmt: skip

    def _certificate(self, name: str, *, names: str) -> None:
        """A key, a certificate that the authority signs, and for the broker both in one file."""
        self._openssl("req", *_CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._write(f"{name}.ext", f"{names}\n")
        self._openssl("x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(DAYS),
                      "-in", f"{name}.csr", "-extfile", f"{name}.ext", "-out", f"{name}.pem")  # fmt: skip
        for left in ("csr", "ext"):
            (self.directory / f"{name}.{left}").unlink()
        if name == BROKER:
            parts = [(self.directory / f"{name}.{kind}").read_text("ascii") for kind in ("key", "pem")]
            self._write(f"{name}.both", "".join(parts))

    def _token_key(self) -> None:
        """The key that signs tokens, and its public half in the form that Kafka reads (JWKS)."""
        self._openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "token.key")
        modulus = self._openssl("rsa", "-in", "token.key", "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256", "n": _url_safe(bytes.fromhex(modulus))}
        self._write("token-keys.json", json.dumps({"keys": [{**key, "e": _url_safe(b"\x01\x00\x01")}]}))

    def _write(self, name: str, text: str) -> None:
        """Write a file that only this user can read."""
        with os.fdopen(os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)

    def _openssl(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self.directory, input=given, capture_output=True, check=False, umask=0o077
        )
        if done.returncode:
            raise BrokerError(f"openssl {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout


def listener_of(login: Login) -> str:
    """The name of the listener for a way to log in."""
    return MUTUAL if login == "tls" else LOGIN


def _url_safe(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _toml(value: str | Mapping[str, str]) -> str:
    """A text, or a table on one line; JSON's texts are TOML's."""
    if isinstance(value, str):
        return json.dumps(value)
    return "{" + ", ".join(f"{key} = {json.dumps(text)}" for key, text in value.items()) + "}"
