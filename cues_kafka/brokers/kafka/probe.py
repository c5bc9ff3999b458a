"""What listens at an address: asked by hand where the client cannot say why it has no connection.

librdkafka says of an expired certificate, a wrong host name and an unknown authority the same, and of a listener with
another protocol nothing but that it is down. A handshake of Python's own tells them apart, and one request of Kafka's
protocol, SaslHandshake, which every listener answers: with the mechanisms that it offers, or that it wants no login.
No secret is sent; a client's certificate is, as it would be by the client.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

TIMEOUT_S: Final = 2.0
"""Of each step; a broker on the other side of the world answers in a fraction of it."""

_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME; the ssl module has no name for it."""

_SASL_HANDSHAKE: Final = 17
_WANTS_NO_LOGIN: Final = 34  # ILLEGAL_SASL_STATE


class Finding(NamedTuple):
    """
    Why there is no connection.

    Attributes:
        cause: a sentence with what to do.
        settings: whether the settings here are wrong, so that no other attempt can succeed.
    """

    cause: str
    settings: bool


class _Listener(NamedTuple):
    """What answers: a Kafka listener of this protocol, with these mechanisms."""

    protocol: str
    mechanisms: tuple[str, ...]


def find(host: str, port: int, settings: Mapping[str, Any]) -> Finding | None:
    """
    Look at one address; takes a few times `TIMEOUT_S` at most.

    Args:
        host: of a broker.
        port: of a broker.
        settings: the client's.

    Returns:
        None: nothing is wrong that can be seen from here, or nothing answers.
    """
    wanted = str(settings.get("security.protocol", "plaintext")).upper()
    try:
        tls = _speaks_tls(host, port)
        if tls and wanted.endswith("SSL") and (trouble := _distrust(host, port, settings)):
            return trouble
        found = _listener(host, port, settings, tls=tls)
    except _Refused as refused:
        return Finding(str(refused), settings=True)
    except (OSError, struct.error, UnicodeDecodeError):
        return None
    if found.protocol != wanted:
        offered = f" with {', '.join(found.mechanisms)}" if found.mechanisms else ""
        return Finding(
            f"{host}:{port} is a listener for {found.protocol}{offered}, and security.protocol here is {wanted}: set "
            f"config={{'security.protocol': '{found.protocol}'}}, or use the port of another listener",
            settings=True,
        )
    mechanism = str(settings.get("sasl.mechanisms") or settings.get("sasl.mechanism") or "")
    if found.mechanisms and mechanism not in found.mechanisms:
        return Finding(
            f"{host}:{port} does not offer the mechanism {mechanism}: set 'sasl.mechanisms' to "
            f"{' or '.join(found.mechanisms)}",
            settings=True,
        )
    return None


class _Refused(Exception):
    """The listener refuses the client's certificate."""


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to look: nothing secret is sent
    return context


def _speaks_tls(host: str, port: int) -> bool:
    """Whether a handshake begins. A plain listener of Kafka takes its first bytes for a size and hangs up."""
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as plain:
        try:
            with _unverified().wrap_socket(plain, server_hostname=host):
                return True
        except ssl.SSLError as error:
            return "ALERT" in str(error.reason)  # TLS 1.2 asks for the client's certificate inside the handshake
        except ConnectionError:
            return False


def _distrust(host: str, port: int, settings: Mapping[str, Any]) -> Finding | None:
    """Why the broker's certificate is not trusted."""
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        return None
    context = ssl.create_default_context(cafile=_path(settings, "ssl.ca.location"), cadata=settings.get("ssl.ca.pem"))
    context.check_hostname = str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() != "none"
    _add_own(context, settings)
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
        "that signed it",
        settings=True,
    )


def _certificate(host: str, port: int, context: ssl.SSLContext) -> dict[str, Any]:
    with (
        socket.create_connection((host, port), timeout=TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        return secure.getpeercert() or {}


def _listener(host: str, port: int, settings: Mapping[str, Any], *, tls: bool) -> _Listener:
    """
    Ask for the mechanisms.

    Raises:
        _Refused: the client's certificate.
        OSError: what answers is not Kafka, or nothing answers.
    """
    context = _unverified()
    own = tls and _add_own(context, settings)
    name = b"cues-kafka"
    mechanism = b"PLAIN"
    request = struct.pack(f">hhih{len(name)}sh{len(mechanism)}s", _SASL_HANDSHAKE, 1, 1, len(name), name, 5, mechanism)
    with socket.create_connection((host, port), timeout=TIMEOUT_S) as plain:
        try:
            connection = context.wrap_socket(plain, server_hostname=host) if tls else plain
            with connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                if not 10 <= size <= 10_000:
                    raise ConnectionError("not Kafka")
                answer = _exactly(connection, size)
        except ssl.SSLError as error:
            if "ALERT" not in str(error.reason):
                raise
            if own:
                raise _Refused(
                    f"the broker at {host}:{port} refuses the certificate of this client ({error.reason}): see whether "
                    "it has expired, and whether the broker trusts the authority that signed 'ssl.certificate.location'"
                ) from None
            raise _Refused(
                f"the broker at {host}:{port} wants a certificate of this client ({error.reason}): set "
                "'ssl.certificate.location' and 'ssl.key.location'"
            ) from None
    code, count = struct.unpack_from(">hi", answer, 4)
    mechanisms, at = [], 10
    for _ in range(count):
        (length,) = struct.unpack_from(">h", answer, at)
        mechanisms.append(answer[at + 2 : at + 2 + length].decode())
        at += 2 + length
    login = code != _WANTS_NO_LOGIN
    return _Listener(("SASL_" if login else "") + ("SSL" if tls else "PLAINTEXT"), tuple(mechanisms) if login else ())


def _add_own(context: ssl.SSLContext, settings: Mapping[str, Any]) -> bool:
    """Give the client's certificate to a context; whether there is one. What cannot be read was refused before."""
    certificate, key = _path(settings, "ssl.certificate.location"), _path(settings, "ssl.key.location")
    if certificate is not None:
        password = str(settings.get("ssl.key.password") or "")
        context.load_cert_chain(certificate, key, lambda: password)
    return any(
        settings.get(name) for name in ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
    )


def _path(settings: Mapping[str, Any], name: str) -> str | None:
    value = settings.get(name)
    return str(value) if value and str(value) != "probe" else None


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionError("hung up")
        found += part
    return found
