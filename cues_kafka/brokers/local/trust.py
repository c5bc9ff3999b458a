"""Give a Java the certificate authorities that Python trusts.

A Java runtime from PyPI has its own list and does not read the system's. Behind a company's proxy with an authority of
its own, it would reach no repository. Python reads the system's list and ``SSL_CERT_FILE``, and this module writes that
list as a Java key store.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

PASSWORD = "changeit"  # noqa: S105 - guards nothing
"""The usual one of Java. The file holds public certificates only, and the password protects only the digest."""


def trust_options(file: Path) -> list[str]:
    """Write the key store, and return the JVM options that use it; no options if Python trusts no authority."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    file.write_bytes(key_store(certificates))
    store = "-Djavax.net.ssl.trustStore"
    return [f"{store}={file}", f"{store}Type=jks", f"{store}Password={PASSWORD}"]


def key_store(certificates: Iterable[bytes]) -> bytes:
    """
    A key store in Java's format JKS, version 2, with trusted certificates only.

    Magic number, version, count; per entry: kind 2, alias, creation time, type, DER; then SHA-1 of password, a
    constant of the format, and all bytes before.
    """
    entries = [
        struct.pack(">I", 2) + _text(f"authority-{i}") + struct.pack(">Q", 0) + _text("X.509") + _sized(der)
        for i, der in enumerate(certificates)
    ]
    body = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # noqa: S324 - the format's own
    return body + digest.digest()


def _text(value: str) -> bytes:
    data = value.encode("ascii")
    return struct.pack(">H", len(data)) + data


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
