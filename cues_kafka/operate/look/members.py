"""Says what to do about members of groups that a tool needs without members, and how long a dead one is a member."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

SESSIONS: Final = (
    "one that was killed is a member until its session ends, after 10 s by default. With group_protocol='consumer' "
    "that is the session of the brokers, 45 s by default, and a worker with an instance name (each one of a "
    "supervisor has one) is a member for as long after SIGTERM, too"
)
"""A4."""


def has_members(groups: Mapping[str, Collection[str]]) -> str:
    """The refusal of a tool, by group and its members."""
    shown = "; ".join(f"group {group!r} has members ({', '.join(sorted(who))})" for group, who in groups.items())
    return f"{shown}. Stop {'its' if len(groups) == 1 else 'their'} workers first; {SESSIONS}."
