"""What is wrong where TLS with another broker fails, and what to change."""

from __future__ import annotations

import re
from typing import Final

from cues_kafka.bridges.address import BrokerAddress
from cues_kafka.errors import RecoveryError

_REASON: Final = re.compile(r"\[SSL: (\w+)\]")
_WHY: Final = re.compile(r"certificate verify failed: (.*?)\.?(?: \(_ssl|$)")

_REFUSES_OURS: Final = re.compile(
    "ALERT_(CERTIFICATE_REQUIRED|BAD_CERTIFICATE|CERTIFICATE_UNKNOWN|CERTIFICATE_EXPIRED|CERTIFICATE_REVOKED"
    "|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE)"
)
"""Alerts of a broker that wants another certificate of its client; brokers and versions of TLS differ in the word."""

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})

_RETRIED: Final = "the task is retried"


def tls_refusal(who: str, address: BrokerAddress, error: object) -> RecoveryError | None:
    """
    Say what has to change; None: the error is not one of TLS, or may end by itself.

    Args:
        who: the broker, such as `the MQTT broker`.
        address: where it is, with the files that are used.
        error: the error of TLS, or a text that has it.
    """
    said = str(error)
    found = _REASON.search(said)
    if not (address.encrypted and found):
        return None
    reason = found[1]
    if reason == "CERTIFICATE_VERIFY_FAILED":
        return _not_trusted(who, address, said)
    if _REFUSES_OURS.search(reason):
        text = f"refuses our certificate {address.cert}" if address.cert else "wants a certificate of its clients"
        remedy = "give a certificate that an authority of the broker has signed, with cert= and cert_key="
        return RecoveryError(f"{who} {text} ({reason})", remedy=f"{remedy}; {_RETRIED}")
    if reason in _NO_TLS:
        remedy = f"name the port that has TLS, or write {address.without_tls}:// for this one"
        return RecoveryError(f"{who} speaks no TLS at this port ({reason})", remedy=f"{remedy}; {_RETRIED}")
    return None


def _not_trusted(who: str, address: BrokerAddress, said: str) -> RecoveryError:
    found = _WHY.search(said)
    why = address.quiet(found[1] if found else said)
    if "mismatch" in why:
        remedy = "write the name that the certificate has into the address, or give the broker one for this name"
        return RecoveryError(f"the certificate of {who} is for another host: {why}", remedy=f"{remedy}; {_RETRIED}")
    if "expired" in why or "not yet valid" in why:
        remedy = "renew it, or correct the clock of this machine"
        return RecoveryError(f"the certificate of {who} is not valid now: {why}", remedy=f"{remedy}; {_RETRIED}")
    trusted = f"the authorities in {address.ca}" if address.ca else "the authorities that this system trusts"
    return RecoveryError(
        f"the certificate of {who} is not from {trusted}: {why}",
        remedy=f"name the file with the authority that has signed it: ca=...; {_RETRIED}",
    )


def early_end(address: BrokerAddress) -> str:
    """What to look at where a connection ended before the broker had answered the login."""
    if not address.encrypted:
        return f"If the port has TLS, write {address.with_tls}://"
    certificate = "" if address.cert else "If it wants a certificate of its clients, give cert=. "
    return f"{certificate}If the port has no TLS, write {address.without_tls}://"
