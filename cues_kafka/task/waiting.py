"""Has the calls of a task wait until its tables have what was committed before the calls' messages were fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cues_kafka.core.spec import Spec
from cues_kafka.errors import RetriableError
from cues_kafka.observe.log import get_logger
from cues_kafka.observe.together import Together
from cues_kafka.ports.log import TopicPartition
from cues_kafka.state.tables import TableSpec
from cues_kafka.task.following import Tables, places_of

log = get_logger("cues_kafka.state")

POLL_S: Final = 0.01
"""How long the tables are waited for at a time. Committed messages come sooner; an end behind markers does not."""

ASK_S: Final = 2.0
"""How long one question for the ends may take."""

REMEDY: Final = (
    "bring back the brokers that lead the table's partitions; if they are only slow, raise the table's wait=, or write "
    "then='call', which calls the function with what was read"
)

LATE: Final = Together()

Places = Mapping[TopicPartition, TableSpec]


class TablesRead:
    """
    Waits for the tables of one task (see `ports.awaited.Awaited`).

    The ends are asked for after the messages of the calls were fetched. So they are behind everything that was
    committed before those messages were sent.

    Attributes:
        missed: how often a table was not read in time.
    """

    def __init__(self, tables: Tables, spec: Spec) -> None:
        self.missed = 0
        self._tables, self._task = tables, spec.name
        self._wanted = {place: one for one in tables.awaited for place in places_of(one, spec.partition)}

    def wait(self, given_up: Callable[[], bool]) -> None:
        tables = self._tables
        clock = tables.clock
        began_s = clock.monotonic()
        left: Places = self._wanted
        ends: Mapping[TopicPartition, int] = {}
        why = "the brokers have not said where it ends"
        while left:
            if given_up():
                raise RetriableError(f"{self._task} was given up while it waited for its tables")
            if ends:
                unread = tables.unread({place: ends[place] for place in left})
                left = {place: left[place] for place in unread}
                why = "; ".join(
                    f"{place.topic}/{place.partition} is read up to {at} of {ends[place]}"
                    for place, at in unread.items()
                )
            left = self._in_time(left, clock.monotonic() - began_s, why)
            if left and ends:
                tables.read_up_to({place: ends[place] for place in left}, POLL_S)
            elif left:
                try:
                    ends = tables.stable_ends([*left], timeout_s=ASK_S)
                except RetriableError as error:
                    why = str(error)
                    clock.sleep(POLL_S)

    def _in_time(self, left: Places, waited_s: float, why: str) -> Places:
        """Those that may still be waited for."""
        late = {one.name: one for one in left.values() if one.wait_s is not None and waited_s >= one.wait_s}
        for one in late.values():
            self.missed += 1
            text = f"the table {one.name!r} was not read up to its end within wait={one.wait_s:g} s: {why}"
            if one.stops:
                raise RetriableError(text, remedy=REMEDY)
            LATE.warning(log, "called before its table was read", cause=one.topic, task=self._task, why=text)
        return {place: one for place, one in left.items() if one.name not in late}
