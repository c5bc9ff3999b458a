"""`Feed`: a part of a graph that writes what a source outside of Kafka holds into a topic, exactly once.

The source says where it stands with a text, the *place*. Messages and place are committed in one Kafka transaction, so
a restart reads on behind the last message that was committed (docs/feeds.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from cues_kafka.arguments import given_arguments, known_arguments
from cues_kafka.errors import GraphError
from cues_kafka.extras import Package
from cues_kafka.graph.declare import CommitPolicy
from cues_kafka.graph.error_message import Errors, check_errors
from cues_kafka.graph.levels import FEED, EdgeKind
from cues_kafka.graph.message import Message
from cues_kafka.graph.names import check_name, check_written_topic
from cues_kafka.graph.topic import check_count, set_fields


class Encoded(bytes):
    """
    A value in the bytes of its topic's codec, such as a line of JSON.

    A feed has the codec read it, so that what does not fit is an error, and writes the same bytes.
    """

    __slots__ = ()


class LatePlace:
    """
    A place whose text is made when it is needed: that of the last row of a batch, and of rows that fail.

    For sources whose places are long. It is equal to its text.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str | LatePlace) and str(self) == str(other))

    def __hash__(self) -> int:
        return hash(str(self))


@runtime_checkable
class ReplayableSource(Protocol):
    """
    A source that can be read again from any place that it gave, until the messages behind it are committed.

    It may have these methods besides; the runtime calls each one that is there:

    - `open()`: gives the object that one process reads from; without it, all processes read from the declared one.
    - `committed(part, place)`: everything up to this place is committed in Kafka, so the source may drop it. Called
      before the first `read` after each start, and after commits; the last places may be left out.
    - `notify(wake)`: the source may call `wake()`, on any thread, when it has news for a feed that waits.
    - `show(place)`: the place of a message for people, such as a file and a line.
    - `release(part)`: another process may read this part from now on. It may come on another thread than `read`.
    - `close()`: nothing more is read. It may come on another thread than `read`.

    The others come on one thread. It may have attributes, too: `level`, `rests_on` and `remedy`, what it guarantees, on
    which condition, and what makes it exactly once, for the plan; `most`, how many rows a batch may have; and `prompt`,
    True where `committed` is called at once after each commit, because the source waits for it. A `level` begins with
    `exactly once`, `at least once` or `at most once`; any other text counts as at least once.
    """

    def parts(self) -> int:
        """The number of parts that are read side by side, each one in order. It never changes, and asks nothing."""
        ...

    def read(self, part: int, place: str | None, limit: int) -> Iterable[tuple[Message[Any], str]]:
        """
        The messages behind a place, in order, each with its own place: the one from which the next one is read.

        Args:
            part: number of the part, from 0.
            place: as it was given with the last message that was taken; None: the beginning. It may be one that was
                given before the last ones, after a failure or in another process.
            limit: how many messages are taken at most. Iterating may end earlier, in the middle of a generator.

        Returns:
            An iterable that ends where nothing more is there now. It does not wait for news.

        Raises:
            OSError, RetriableError: the source does not answer; it is asked again, after a pause that grows.
            RecoveryError: it must not be read on, for example because a file was replaced; the task stops.
        """
        ...


MOST_PARTS = 10_000


@known_arguments()
@dataclass(frozen=True, slots=True, init=False)
class Feed:
    """
    What a source outside of Kafka holds goes into a topic, exactly once.

    Attributes:
        source: what is read, see `ReplayableSource`.
        into: the topic that its messages go into.
        name: its name in the graph; by default that of the source's class in small letters.
        parts: how many tasks read it, as the source says.
        errors: topic of messages that do not fit `into`, or `Errors`; None: the graph's; False: none, so the task
            stops.
        commit: when batches are committed; None: as the run says.
        poll_seconds: how long to wait before a source that had nothing more is asked again.
    """

    source: ReplayableSource
    into: str
    name: str
    parts: int
    errors: str | Errors | Literal[False] | None
    commit: CommitPolicy | None
    poll_seconds: float

    def __init__(
        self,
        source: ReplayableSource,
        into: str,
        *,
        name: str | None = None,
        parts: int | None = None,
        errors: str | Errors | Literal[False] | None = None,
        commit: CommitPolicy | None = None,
        poll_seconds: float = 0.5,
    ) -> None:
        set_fields(self, source=source, into=into, name=type(source).__name__.lower() if name is None else name)
        check_name(self.name, "Feed")
        label = self.label
        check_written_topic(into, f"{label}, into=")
        if not isinstance(source, ReplayableSource) or isinstance(source, type):
            raise GraphError(
                f"{label}: a {type(source).__name__} is not a source. Give Files(...), Iterate(...), SqlOutbox(...), "
                "or an object with the methods parts() and read(part, place, limit)."
            )
        has = source.parts()
        check_count(has, f"{label}: parts() of its source")
        if has > MOST_PARTS:
            raise GraphError(f"{label}: its source has {has} parts, and at most {MOST_PARTS} are allowed.")
        if parts is not None and parts != has:
            raise GraphError(
                f"{label}: parts={parts!r}, but its source has {has}. Leave parts= out, and give the source its parts: "
                "Files(..., tasks=4)."
            )
        check_errors(errors, f"{label}, errors=")
        if not isinstance(commit, CommitPolicy | None):
            raise GraphError(f"{label}: commit={commit!r}. Write commit=CommitPolicy(max_messages=1_000).")
        if isinstance(poll_seconds, bool) or not isinstance(poll_seconds, int | float) or not poll_seconds > 0:
            raise GraphError(f"{label}: poll_seconds={poll_seconds!r}: takes a number of seconds above 0.")
        set_fields(self, parts=has, errors=errors, commit=commit, poll_seconds=float(poll_seconds))

    def packages(self) -> tuple[Package, ...]:
        """What must be installed for its source, besides the core; a source of a user's may say so, too."""
        asked = getattr(self.source, "packages", None)
        found = asked() if callable(asked) else ()
        return tuple(one for one in found if isinstance(one, Package)) if isinstance(found, tuple) else ()

    @property
    def label(self) -> str:
        """How error messages name the feed."""
        return f"Feed {self.name!r}"

    @property
    def edge(self) -> EdgeKind:
        """What it guarantees, on which condition, and the command that shows it."""
        own = getattr(self.source, "edge", None)
        kind = own if isinstance(own, EdgeKind) else FEED
        return EdgeKind(
            kind.edge,
            str(getattr(self.source, "level", kind.level)),
            str(getattr(self.source, "rests_on", kind.why)),
            kind.shown_by,
            str(getattr(self.source, "remedy", kind.remedy)),
        )

    @property
    def level(self) -> str:
        """What it guarantees, and what that rests on."""
        return self.edge.level

    # What it has in common with processors. It reads no topic.

    @property
    def kind(self) -> str:
        """The kind's name."""
        return "feed"

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        """None: its messages come from outside."""
        return ()

    @property
    def outputs(self) -> tuple[tuple[str, str], ...]:
        """The topic that it writes."""
        return (("output", self.into),)

    @property
    def input_topics(self) -> tuple[str, ...]:
        return ()

    @property
    def read_topics(self) -> tuple[str, ...]:
        return ()

    @property
    def output_topics(self) -> tuple[str, ...]:
        """The topic that it writes, without its errors topic."""
        return (self.into,)

    @property
    def start(self) -> str:
        """It begins where its source begins."""
        return "earliest"

    @property
    def fn(self) -> None:
        """It has no function."""
        return

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments that construct an equal one, without defaults."""
        own = {"source": self.source, "into": self.into, "name": self.name}
        return own | given_arguments(self, ("errors", "commit", "poll_seconds"))


def called_if_there(source: object, method: str) -> Callable[..., Any] | None:
    """A method that a source may have; None: it has none."""
    found = getattr(source, method, None)
    return found if callable(found) else None
