"""What a STOMP broker refuses, and what to change."""

from __future__ import annotations

import re
from typing import Final

from cues_kafka.bridges.marker import BrokerRefused
from cues_kafka.bridges.stomp.address import StompAddress
from cues_kafka.bridges.stomp.frames import Frame

WHO: Final = "the STOMP broker"

_LOGIN: Final = re.compile("password is invalid|Security Error", re.IGNORECASE)
_CLASSIC: Final = re.compile(r"not authorized to (read from|write to|create): (\S+)")
_ARTEMIS: Final = re.compile(r"does not have permission='(\w+)' .*?(?:address|queue) (\S+)")

_UNSENT: Final = re.compile(r"Error sending message .*?\baddress=([^,\]]+)")
"""Artemis puts the whole message into this text, with its properties."""

_OTHERS: Final = (
    "correct the login, the queue or the selector, give this user the right, or end another consumer of the queue"
)


class StompRefused(BrokerRefused):
    """The broker refuses a frame. Do what the text says; the task is retried."""


def refusal(said: str, address: StompAddress) -> StompRefused:
    """
    The error of a frame that the broker has refused.

    Args:
        said: what the broker says of it; see `said_by`.
        address: where the broker is, whose parts are not shown.
    """
    remedy, denied = _OTHERS, False
    if _LOGIN.search(said):
        remedy = "correct user and password in the address of Stomp(...)"
    elif found := _CLASSIC.search(said):
        remedy, denied = f"let this user {found[1]} {found[2]} (authorizationEntry)", True
    elif found := _ARTEMIS.search(said):
        remedy, denied = (
            f"give this user the permission {found[1]} on {found[2]} (security-setting)",
            True,
        )
    elif found := _UNSENT.search(said):
        said = f"{said.partition(' ')[0]} Error sending message to {found[1]}"
        remedy, denied = (
            f"give this user the permission SEND on {found[1]} (security-setting); the log of Artemis has the reason",
            True,
        )
    elif "Error creating subscription" in said:  # Artemis says no more, and the log of the broker has the reason
        remedy = (
            "give this user the permission CONSUME on the queue (security-setting), or end another consumer where "
            "default-max-consumers is 1; the log of Artemis says which of the two it is"
        )
    error = StompRefused(f"{WHO} refuses: {address.quiet(said)[:500]}", remedy=f"{remedy}; the task is retried")
    error.denied = denied
    return error


def not_stomp(why: str) -> StompRefused:
    """The error of an answer that is no STOMP."""
    return StompRefused(
        f"the answer of the broker is not STOMP 1.2: {why}",
        remedy="name the port at which the broker speaks STOMP; the task is retried",
    )


def said_by(frame: Frame) -> str:
    """What an ERROR frame says, in its header and at the beginning of its body; brokers repeat the one in the other."""
    header = frame.headers.get("message", "").strip()
    body = frame.body[:300].decode(errors="replace").strip().partition("\n")[0]
    if header.replace(":", "").replace(" ", "") == body.replace(":", "").replace(" ", ""):
        header = ""
    return ": ".join(one for one in (header, body) if one) or frame.command
