"""Names: which are allowed, what things are called on the cluster, and how an error suggests a known one.

The table of names on the cluster is in docs/plan.md. No other module composes these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cues_kafka import words
from cues_kafka.errors import GraphError

RESERVED = ("send", "tailer", "backing", "replay", "changelog", "journal")
"""Parts of names on the cluster, which no graph, processor, binding or store may have as its name."""

MAX_TOPIC_CHARS = 249
"""Kafka's limit for topic names."""

MAX_GRAPH_CHARS = 80
"""The most characters of a graph's name with its prefix: databases have columns of this width for it."""

MAX_NAME_CHARS = 80
"""The most characters of a processor's name."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_PREFIX = re.compile(r"[A-Za-z0-9._-]*[._-]")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TOOLS = ".tools"
_OWNED_SUFFIXES = (".backing", ".replay", ".changelog", ".journal", ".tailers")

quoted, hint = words.quoted, words.hint


def no_such_processor(graph: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    """The message of an error about processors that a graph does not have."""
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
        raise GraphError(f"{what}: {name!r} is not a valid name. Use 1 to 80 letters, digits, '_' or '-'.")
    if name in RESERVED:
        raise GraphError(f"{what}: {name!r} is reserved ({quoted(RESERVED)}). Choose another name.")
    return name


def check_dotted(name: object, what: str) -> str:
    """
    Check the name of a program's own, which may have a prefix with dots: of a client, or of a job on Spark.

    Raises:
        GraphError: a part of it between the dots is no name, see `check_name`.
    """
    if not isinstance(name, str):
        raise GraphError(f"{what}: a name is a string, not {name!r}. Give a string.")
    for part in name.split("."):
        if not _NAME.fullmatch(part) or len(name) > MAX_GRAPH_CHARS:
            raise GraphError(
                f"{what}: {name!r} is not a valid name. Use 1 to {MAX_GRAPH_CHARS} letters, digits, '_' or '-', with "
                "dots between them."
            )
    check_name(name.rpartition(".")[2], what)
    return name


def prefixed(name: object, prefix: object, what: str) -> str:
    """
    Check the name and the prefix of a graph, and return the name with the prefix before it, once.

    Raises:
        GraphError: the name is not valid, or the prefix cannot begin names on the cluster.
    """
    if not isinstance(prefix, str):
        raise GraphError(f"{what}: prefix={prefix!r} is not text. Write prefix='team-x.'.")
    if prefix and (not _PREFIX.fullmatch(prefix) or ".." in prefix or prefix.startswith((".", "_"))):
        raise GraphError(
            f"{what}: prefix={prefix!r} cannot begin names on the cluster. Use letters, digits, '.', '_' and '-', "
            "with a letter or digit first and one of '.', '_' and '-' at the end, such as 'team-x.'."
        )
    own = name.removeprefix(prefix) if isinstance(name, str) else name
    if isinstance(own, str) and "." in own:
        before, _, last = own.rpartition(".")
        raise GraphError(
            f"{what}: {own!r} has a dot, which separates the parts of names on the cluster. Write "
            f"{own.replace('.', '-')!r}, or Graph({last!r}, ..., prefix='{prefix}{before}.')."
        )
    own = check_name(own, what)
    if prefix and len(prefix + own) > MAX_GRAPH_CHARS:
        raise GraphError(
            f"{what}: the name and prefix={prefix!r} have {len(prefix + own)} characters. Shorten one of them, to "
            f"{MAX_GRAPH_CHARS} in all."
        )
    return prefix + own


def check_topic(topic: object, what: str) -> str:
    """
    Check a topic's name by Kafka's rule.

    Raises:
        GraphError: it is not ``[A-Za-z0-9._-]{1,249}``, or is ``.`` or ``..``.
    """
    if not isinstance(topic, str):
        raise GraphError(f"{what}: a topic is named by a string, not {topic!r}. Give the topic's name.")
    if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
        raise GraphError(
            f"{what}: {topic!r} is not a valid topic name. Kafka allows 1 to 249 letters, digits, '.', '_' or '-'."
        )
    return topic


def check_written_topic(topic: object, what: str) -> str:
    """
    Check the name of a topic that users write: the framework alone writes its own topics (I14).

    Raises:
        GraphError: as in `check_topic`, or the name is one that the framework gives to its own topics.
    """
    name = check_topic(topic, what)
    if name.endswith(_OWNED_SUFFIXES):
        raise GraphError(f"{what}: only the framework writes topics such as {name!r}. Choose another topic.")
    return name


def group_id(graph: str, processor: str) -> str:
    """The consumer group of a processor."""
    return f"{graph}.{processor}"


def transactional_prefix(graph: str, processor: str) -> str:
    """The prefix of all transactional ids of a processor, which one prefixed ACL covers."""
    return f"{graph}.{processor}."


def transactional_id(graph: str, processor: str, partition: int) -> str:
    """The transactional id of a task, which locks it (O1): the same in every runtime and tool."""
    return f"{graph}.{processor}.{partition}"


def tools_group(owner: str) -> str:
    """
    The group that tools name when they read. The client needs one; tools do not join it and commit nothing there.

    Args:
        owner: the graph; in a program without a graph, the topic that it reads.
    """
    return f"{owner}{_TOOLS}"


def is_tools_group(group: str) -> bool:
    """Whether this is a group of tools, which need no more than Describe on it."""
    return group.endswith(_TOOLS)


def sender_id(graph: str | None, source: str, client: str) -> str:
    """
    The transactional id of an application that sends several messages to a source in one transaction.

    Without a graph it begins with the topic's name, so that a prefixed ACL on the topic's prefix can cover it.
    """
    return f"{graph}.{source}.send.{client}" if graph else f"{source}.send.{client}"


def client_id(client: str) -> str:
    """The transactional id of a client with a name."""
    return f"{client}.send"


def tailer_id(client: str, tailer: str) -> str:
    """The transactional id of a named tailer, and the group that shows its place to lag tools."""
    return f"{client}.tailer.{tailer}"


def tailers_topic(client: str) -> str:
    """The topic of the places of a client's named tailers."""
    return f"{client}.tailers"


def backing_topic(graph: str, processor: str) -> str:
    """The topic of a processor's snapshots and attempts."""
    return f"{graph}.{processor}.backing"


def processor_of(graph: str, topic: str) -> str | None:
    """The processor or feed that owns this topic. None: the topic is not one that the framework made for this graph."""
    owner, _, rest = topic.removeprefix(f"{graph}.").partition(".")
    parts, suffix = rest.split("."), f".{rest.rpartition('.')[2]}"
    own = suffix in _OWNED_SUFFIXES[:4] and len(parts) == (2 if suffix == ".changelog" else 1)
    return owner if topic.startswith(f"{graph}.") and own else None


def replay_topic(graph: str, processor: str) -> str:
    """The topic that replays error messages (X1)."""
    return f"{graph}.{processor}.replay"


def changelog_topic(graph: str, processor: str, store: str) -> str:
    """The topic of a store's changes."""
    return f"{graph}.{processor}.{store}.changelog"


def journal_topic(graph: str, processor: str) -> str:
    """The topic of the answers to a processor's calls (E4)."""
    return f"{graph}.{processor}.journal"


def control_topic(graph: str) -> str:
    """The topic that has the cuts of a graph, and tells its workers to pause."""
    return f"{graph}.control"


def status_topic(graph: str) -> str:
    """The topic on which workers tell the state of their tasks."""
    return f"{graph}.status"
