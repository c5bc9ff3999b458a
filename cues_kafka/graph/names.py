"""Names: which ones are allowed, what things are called on the cluster, and how an error names the nearest one.

The table of names on the cluster is in docs/operations.md; nothing else in the project puts these names together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from cues_kafka.errors import GraphError

RESERVED = ("send", "backing", "replay", "changelog")
"""Words that are parts of names on the cluster, so that no graph, processor, binding or store may be called so."""

MAX_TOPIC_CHARS = 249
"""Kafka's limit for topic names."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOOLS = ".tools"
_OWNED_SUFFIXES = (".backing", ".replay", ".changelog")


def quoted(names: Iterable[str]) -> str:
    """Names as a list that can be read in an error message."""
    return ", ".join(repr(name) for name in names) or "none"


def hint(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'orders'?)``, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def no_such_processor(graph: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """
    What an error says of names that a graph does not have.

    Args:
        graph: its name.
        unknown: the names.
        known: the processors that it has.
    """
    wrong, there = sorted(unknown), sorted(known)
    return (
        f"graph {graph!r} has no processor {quoted(wrong)}; its processors are {quoted(there)}{hint(wrong[0], there)}"
    )


def check_name(name: object, what: str) -> str:
    """
    Check the name of a graph, processor, binding or store.

    Args:
        name: the name.
        what: what it names, for the message.

    Raises:
        GraphError: it is not ``[A-Za-z0-9_-]{1,80}``, or reserved.
    """
    if not isinstance(name, str):
        raise GraphError(f"{what}: a name is a string, not {name!r}. Give a string.")
    if "." in name:
        raise GraphError(
            f"{what}: {name!r} has a dot, which separates the parts of names on the cluster. "
            f"Write {name.replace('.', '-')!r}."
        )
    if not _NAME.fullmatch(name):
        raise GraphError(f"{what}: {name!r} is no name. Use 1 to 80 letters, digits, '_' or '-'.")
    if name in RESERVED:
        raise GraphError(f"{what}: {name!r} is reserved ({quoted(RESERVED)}). Choose another name.")
    return name


def check_topic(topic: object, what: str) -> str:
    """
    Check a topic's name by Kafka's rule.

    Raises:
        GraphError: it is not ``[A-Za-z0-9._-]{1,249}``, or is ``.`` or ``..``.
    """
    if not isinstance(topic, str):
        raise GraphError(f"{what}: a topic is named by a string, not {topic!r}. Give the topic's name.")
    if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
        raise GraphError(f"{what}: {topic!r} is no topic name. Kafka allows 1 to 249 letters, digits, '.', '_' or '-'.")
    return topic


def is_owned(topic: str) -> bool:
    """Whether a topic's name is one that the framework gives to its own topics, which nobody else may write (I14)."""
    return topic.endswith(_OWNED_SUFFIXES)


def group_id(graph: str, processor: str) -> str:
    """The consumer group of a processor."""
    return f"{graph}.{processor}"


def transactional_prefix(graph: str, processor: str) -> str:
    """What all transactional ids of a processor begin with: one prefixed ACL covers them."""
    return f"{graph}.{processor}."


def transactional_id(graph: str, processor: str, partition: int) -> str:
    """The lock of one task (O1): stable, the same in every runtime and tool."""
    return f"{graph}.{processor}.{partition}"


def tools_group(owner: str) -> str:
    """
    The group that tools name when they read. The client demands one; nothing joins it or commits there.

    Args:
        owner: the graph; of a program that has none, the topic that it reads.
    """
    return f"{owner}{_TOOLS}"


def is_tools_group(group: str) -> bool:
    """Whether nobody but tools names this group, so that Describe is all that anybody needs on it."""
    return group.endswith(_TOOLS)


def sender_id(graph: str | None, source: str, client: str) -> str:
    """
    The transactional id of an application that sends several messages to a source in one transaction.

    Without a graph it begins with the topic's name, so it is inside of whatever prefix the topic is in.
    """
    return f"{graph}.{source}.send.{client}" if graph else f"{source}.send.{client}"


def backing_topic(graph: str, processor: str) -> str:
    """The topic of a processor's snapshots and attempts."""
    return f"{graph}.{processor}.backing"


def replay_topic(graph: str, processor: str) -> str:
    """The topic that error messages are replayed through (X1)."""
    return f"{graph}.{processor}.replay"


def changelog_topic(graph: str, processor: str, store: str) -> str:
    """The topic of a store's changes."""
    return f"{graph}.{processor}.{store}.changelog"
