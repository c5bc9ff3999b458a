"""Whether a request that changes something comes from a page of the view, and from whom."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import Message
from typing import Any, Final
from urllib.parse import urlsplit

from cues_kafka.words import visible

OWN_HEADER: Final = "X-Cues-Kafka"
"""A form of another site cannot set it, and a script of another site may not: browsers ask first, and get a no."""

BODY: Final = 10_000
"""Bytes that a page may send."""


def why_foreign(headers: Message, *, behind_proxy: bool) -> str:
    """
    Why a request may be that of another site; empty: it is one of our page.

    A browser says in Origin, and in Sec-Fetch-Site, whose page has sent a request; a page cannot change either.

    Args:
        headers: of the request.
        behind_proxy: whether Host may be a name that only the proxy knows.
    """
    if not _header(headers, OWN_HEADER):
        return f"the header {OWN_HEADER} is missing"
    if _header(headers, "Content-Type").partition(";")[0].strip().lower() != "application/json":
        return "the body is not application/json"
    site = _header(headers, "Sec-Fetch-Site")
    if site and site != "same-origin":
        return f"Sec-Fetch-Site is {site!r:.40}"
    origin = origin_of(headers)
    own = {_header(headers, "Host").lower()}
    if behind_proxy:
        own.add(_header(headers, "X-Forwarded-Host").lower())
        if site == "same-origin" and origin:
            return ""
    if not origin:
        return "the header Origin is missing"
    return "" if origin in own else "the header Origin names another site"


def _header(headers: Message, name: str) -> str:
    return str(headers.get(name) or "")


def origin_of(headers: Message) -> str:
    """Host and port of the page that sends a request, as its browser says them; empty: they are missing."""
    try:
        found = urlsplit(_header(headers, "Origin"))
    except ValueError:
        return ""
    return found.netloc.lower() if found.scheme in ("http", "https") else ""


def who(headers: Message, address: str, *, behind_proxy: bool) -> str:
    """
    Who asks, for people and for the log: the address, and what a proxy says, which is believed from a proxy only.

    Args:
        headers: of the request.
        address: of the client.
        behind_proxy: whether a proxy is in front.
    """
    if not behind_proxy:
        return address
    said = [_header(headers, "X-Forwarded-User")[:80], _header(headers, "X-Forwarded-For")[:80]]
    return visible(" ".join([*(one for one in said if one), f"through {address}"]))


def json_object(body: bytes) -> Mapping[str, Any]:
    """
    What a page has sent.

    Raises:
        ValueError: it is not an object in JSON.
    """
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found
