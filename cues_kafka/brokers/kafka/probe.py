"""Looks at an address by hand, to find out why the client has no connection.

librdkafka reports an expired certificate, a wrong host name and an unknown authority alike, and a listener with another
protocol only as down. A handshake of Python's own tells them apart, together with one request of Kafka's protocol,
SaslHandshake: every listener answers it with the mechanisms that it offers, or that it wants no login. No secret is
sent; the client's certificate is, as the client would send it.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from cues_kafka.brokers.options import login_of
from cues_kafka.brokers.wire import request

TIMEOUT_S: Final = 2.0
"""How long each step may take; a broker on the other side of the world answers in a fraction of it."""

_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME; the ssl module has no name for it."""

_SASL_HANDSHAKE: Final = 17
_WANTS_NO_LOGIN: Final = 34  # ILLEGAL_SASL_STATE


class Finding(NamedTuple):
    """
    The reason for a failed connection.

    Attributes:
        cause: a sentence with what to do.
        settings: whether the settings here are wrong, so that no other attempt can succeed.
    """

    cause: str
    settings: bool


class _Refused(Exception):
    """The listener refuses the client's certificate."""


def path_of(settings: Mapping[str, Any], name: str) -> str | None:
    """The file that a setting names; None: none, or librdkafka looks for it in the usual places (`probe`)."""
    value = settings.get(name)
    return str(value) if value and str(value) != "probe" else None


def find_reason(host: str, port: int, settings: Mapping[str, Any]) -> Finding | None:
    """
    Look at the address of a broker with a client's settings; takes a few times `TIMEOUT_S` at most.

    Returns:
        None: the address does not answer, or shows no reason.
    """
    protocol_here, mechanism = login_of(settings)
    wanted = protocol_here.upper()
    try:
        tls = _speaks_tls(host, port)
        if tls and wanted.endswith("SSL") and (trouble := _check_trust(host, port, settings)):
            return trouble
        protocol, mechanisms = _listener(host, port, settings, tls=tls)
    except _Refused as refused:
        return Finding(str(refused), settings=True)
    except (OSError, struct.error, UnicodeDecodeError):
        return None
    if protocol != wanted:
        offered = f" with {', '.join(mechanisms)}" if mechanisms else ""
        return Finding(
            f"{host}:{port} is a listener for {protocol}{offered}, and security.protocol here is {wanted}: set "
            f"config={{'security.protocol': '{protocol}'}} or {_value_for(protocol, mechanisms)}, or use the port of "
            "another listener",
            settings=True,
        )
    if mechanisms and mechanism not in mechanisms:
        return Finding(
            f"{host}:{port} does not offer the mechanism {mechanism}: set 'sasl.mechanisms' to "
            f"{' or '.join(mechanisms)}",
            settings=True,
        )
    return None


def _value_for(protocol: str, mechanisms: list[str]) -> str:
    """The value of `security=` for a listener."""
    if protocol in ("PLAINTEXT", "SSL"):
        return "security=None" if protocol == "PLAINTEXT" else "security=Tls(...)"
    tls = "tls=Tls(...)" if protocol.endswith("SSL") else "tls=None"
    if any(mechanism.startswith("SCRAM-") for mechanism in mechanisms):
        return f"security=Scram(user, password, {tls})"
    if "PLAIN" in mechanisms:
        return f"security=Plain(user, password, {tls})"
    return f"security=OAuthBearer(token=..., {tls})"


@contextmanager
def connected(host: str, port: int, context: ssl.SSLContext | None) -> Iterator[socket.socket]:
    """A connection to an address, with TLS if there is a context."""
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as plain:
        if context is None:
            yield plain
        else:
            with context.wrap_socket(plain, server_hostname=host) as secure:
                yield secure


def unverified() -> ssl.SSLContext:
    """A context that verifies nothing, for a look that sends no secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to look: nothing secret is sent
    return context


def _speaks_tls(host: str, port: int) -> bool:
    """Whether a handshake begins. A plain listener of Kafka takes its first bytes for a size and hangs up."""
    try:
        with connected(host, port, unverified()):
            return True
    except ssl.SSLError as error:
        return "ALERT" in str(error.reason)  # TLS 1.2 asks for the client's certificate inside the handshake
    except ConnectionError:
        return False


def _check_trust(host: str, port: int, settings: Mapping[str, Any]) -> Finding | None:
    """Why the client does not trust the broker's certificate."""
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        return None
    context = ssl.create_default_context(cafile=path_of(settings, "ssl.ca.location"), cadata=settings.get("ssl.ca.pem"))
    context.check_hostname = str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() != "none"
    add_certificate(context, settings)
    try:
        _certificate(host, port, context)
    except ssl.SSLCertVerificationError as error:
        return _why_distrusted(host, port, context, error.verify_message)
    except ssl.SSLError:
        return None
    return None


def _why_distrusted(host: str, port: int, context: ssl.SSLContext, said: str) -> Finding:
    where = f"the certificate of the broker at {host}:{port}"
    if "expired" in said or "not yet valid" in said:
        context.check_hostname = False
        context.verify_flags |= _NO_CHECK_TIME
        own = _certificate(host, port, context)
        when = f"expired at {own.get('notAfter')}" if "expired" in said else f"is valid from {own.get('notBefore')} on"
        return Finding(f"{where} {when}: renew it, or set the clock of this machine", settings=False)
    if "mismatch" in said or "not valid for" in said:
        context.check_hostname = False
        names = [name for _, name in _certificate(host, port, context).get("subjectAltName", ())]
        return Finding(
            f"{where} is for other names: {', '.join(names) or 'none'}. Use one of them as the address, or have a "
            f"certificate issued for {host}",
            settings=True,
        )
    return Finding(
        f"{where} is not trusted ({said}): set 'ssl.ca.location' to a PEM file with the certificate of the authority "
        "that signed it, with security= as Tls(ca=...)",
        settings=True,
    )


def _certificate(host: str, port: int, context: ssl.SSLContext) -> dict[str, Any]:
    with connected(host, port, context) as secure:
        assert isinstance(secure, ssl.SSLSocket)
        return secure.getpeercert() or {}


def _listener(host: str, port: int, settings: Mapping[str, Any], *, tls: bool) -> tuple[str, list[str]]:
    """
    The listener's protocol and the mechanisms that it offers.

    Raises:
        _Refused: the listener refuses the client's certificate, or wants one.
        OSError: what answers is not Kafka, or nothing answers.
    """
    context = unverified()
    own = tls and add_certificate(context, settings)
    try:
        code, mechanisms = _handshake(host, port, context if tls else None)
    except ssl.SSLError as error:
        if "ALERT" not in str(error.reason) or settings.get("ssl.keystore.location"):
            raise  # no alert, or about a certificate that only the client can read
        if own:
            raise _Refused(
                f"the broker at {host}:{port} refuses the certificate of this client ({error.reason}): see whether it "
                "has expired, and whether the broker trusts the authority that signed it (Tls(certificate=...))"
            ) from None
        raise _Refused(
            f"the broker at {host}:{port} wants a certificate of this client ({error.reason}): set "
            "'ssl.certificate.location' and 'ssl.key.location', or security=Tls(certificate=..., key=...)"
        ) from None
    encryption = "SSL" if tls else "PLAINTEXT"
    return (encryption, []) if code == _WANTS_NO_LOGIN else (f"SASL_{encryption}", mechanisms)


def _handshake(host: str, port: int, context: ssl.SSLContext | None) -> tuple[int, list[str]]:
    """The error code and the mechanisms of the answer to a SaslHandshake for the mechanism PLAIN."""
    with connected(host, port, context) as connection:
        answer = request(connection, _SASL_HANDSHAKE, 1, struct.pack(">h5s", 5, b"PLAIN"))
    code, count = answer.int16(), answer.int32()
    return code, [answer.text() for _ in range(count)]


def add_certificate(context: ssl.SSLContext, settings: Mapping[str, Any]) -> bool:
    """
    Give the client's certificate to a context, if it is in files or in the settings themselves; whether it is.

    `check_files` has refused unreadable files, and the client what it cannot use of the settings.
    """
    password = str(settings.get("ssl.key.password") or "")
    with ExitStack() as stack:
        certificate, key = path_of(settings, "ssl.certificate.location"), path_of(settings, "ssl.key.location")
        if certificate is None and (pasted := settings.get("ssl.certificate.pem")):
            certificate = stack.enter_context(_in_memory(pasted))
            key = stack.enter_context(_in_memory(settings.get("ssl.key.pem") or pasted))
        if certificate is None:
            return False
        context.load_cert_chain(certificate, key, lambda: password)
        return True


@contextmanager
def _in_memory(text: Any) -> Iterator[str]:
    """The path of a text, which is in no file system: OpenSSL reads keys from paths only."""
    descriptor = os.memfd_create("pem")
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(str(text))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
