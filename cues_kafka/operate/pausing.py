"""Pauses processors of a running graph, and lets them go on: `cues-kafka pause` and `cues-kafka resume`.

A pause is a record on the control topic, so it holds until it is taken back, whatever is restarted. Workers follow the
topic. A paused task commits what it has called, keeps its partition and its lock, and calls nothing more. It tells on
the status topic which pause it follows, and that is what `pause` waits for.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cues_kafka.errors import ConfigError
from cues_kafka.graph.definition import Graph
from cues_kafka.graph.names import backing_topic, group_id, no_such_processor, quoted, tools_group
from cues_kafka.operate.cut.control import ControlTopic
from cues_kafka.operate.cut.drain import SHOWN
from cues_kafka.operate.look.newest import NewestRecord, NewestRecords
from cues_kafka.operate.look.status import PERIODS, StatusView
from cues_kafka.plan.topics import Sides
from cues_kafka.ports.broker import Broker
from cues_kafka.ports.clock import Clock
from cues_kafka.ports.log import TopicPartition
from cues_kafka.records.control import PAUSE, RESET, Hold, Pause, RefusedRecord, encode, key_of_hold
from cues_kafka.records.status import StatusRecord
from cues_kafka.task.clock import SystemClock
from cues_kafka.words import count

LOOK_S: Final = 0.25
"""How often it is asked which tasks have paused."""

UNMANNED_S: Final = 1.0
"""After this time it is asked whether a worker runs what has not paused."""

_RESTS: Final = frozenset({"paused", "stopped"})


@dataclass(frozen=True, slots=True)
class Resumed:
    """
    What `Pausing.resume` took back.

    Attributes:
        holds: pauses of operators.
        pause: that of a tool which takes a cut; None: there was none.
        refused: records that cannot be read, so they held nothing.
        reset: whether a reset that is not complete was taken back.
        held: why tasks are held all the same; empty: nothing holds them.
    """

    holds: Sequence[Hold]
    pause: Pause | None
    refused: Sequence[RefusedRecord]
    reset: bool
    held: str

    @property
    def any(self) -> bool:
        """Whether anything was taken back."""
        return bool(self.holds or self.pause or self.refused or self.reset)


def _moved_by_tool(one: NewestRecord) -> bool:
    """Whether a tool may have written the newest record of a task; also where it cannot be read."""
    return bool(one.why) or (one.record is not None and one.record.writer.runtime == "tool")


class Pausing:
    """
    Writes and takes back pauses.

    Args:
        graph: the graph.
        broker: the cluster; its owner closes it.
        who: who pauses, for people.
        sides: what the settings of the cluster say.
        clock: time.

    Raises:
        ConfigError: control is off, or its topic does not exist.
    """

    def __init__(self, graph: Graph, broker: Broker, *, who: str, sides: Sides, clock: Clock | None = None) -> None:
        found = sides.of_graph(graph)
        if not found.control:
            raise ConfigError(
                f"workers of graph {graph.name!r} follow no control topic: the setting `control` is off. Set "
                "control = true, run `cues-kafka plan MODULE:GRAPH --apply`, and restart the workers."
            )
        self._graph, self._broker, self._who, self._tells = graph, broker, who, found.status
        self._clock = clock or SystemClock()
        self._control = ControlTopic(graph, broker, for_cuts=False)
        self._view = StatusView(graph, broker, sides=sides, clock=self._clock)

    @property
    def names(self) -> Sequence[str]:
        """The processors of the graph."""
        return list(self._graph.all_processors)

    def holds(self) -> Mapping[str | None, Hold]:
        """What is paused now, by processor; None: the whole graph."""
        return self._control.read().holds()

    def pause(
        self,
        processor: str | None = None,
        *,
        timeout_s: float = 60.0,
        tell: Callable[[str], None] = lambda _: None,
        ended: threading.Event | None = None,
    ) -> dict[str, str]:
        """
        Pause a processor or the whole graph, and wait until its tasks have paused. A pause that is there stays.

        Args:
            processor: its name; None: the whole graph.
            timeout_s: how long to wait.
            tell: told what happens.
            ended: set it to end the wait; the pause stays.

        Returns:
            The tasks that have not paused in time, with the reason; empty: nothing is called any more.

        Raises:
            ConfigError: the graph has no such processor.
            BrokerError: the cluster refused.
        """
        names = self._names(processor)
        ended = threading.Event() if ended is None else ended
        deadline = self._clock.monotonic() + timeout_s
        holds = self.holds()
        hold = holds.get(None) or holds.get(processor)
        if hold is None:
            hold = Hold(by=self._who, token=secrets.token_hex(8), processor=processor)
            self._control.write(key_of_hold(processor), encode(hold))
            tell(f"pausing {processor or 'all processors'}")
        else:
            tell(f"already {hold}")
        if not self._tells:
            return dict.fromkeys(names, "status is off, so tasks cannot say that they have paused")
        began_s = self._clock.monotonic()
        while left := self._not_paused(names, hold.token, self._clock.monotonic() - began_s):
            if self._clock.monotonic() >= deadline or ended.wait(LOOK_S):
                return left
        return {}

    def resume(self, processor: str | None = None, *, reset: bool = False, sure: bool = False) -> Resumed:
        """
        Take back what holds tasks, and say what that was.

        Args:
            processor: its name; None: everything that holds the graph, and each record that cannot be read.
            reset: take back a reset that is not complete, too.
            sure: also where tasks stand where a tool has put them, so that the reset may have moved some.

        Raises:
            ConfigError: the graph has no such processor, the whole graph is paused, or tasks were moved.
            BrokerError: the cluster refused.
        """
        self._names(processor)
        control = self._control.read()
        holds = control.holds()
        if processor is not None and None in holds:
            raise ConfigError(
                f"the whole graph is {holds[None]}. Run `cues-kafka resume MODULE:GRAPH` for all processors."
            )
        own = key_of_hold(processor)
        taken = [hold for name, hold in holds.items() if processor in (None, name)]
        refused = [one for one in control.refused() if one.key != RESET and (processor is None or one.key == own)]
        pause = control.pause() if processor is None else None
        over = reset and control.resetting
        if over and not sure:
            self._refuse_moved()
        keys = [*(key_of_hold(hold.processor) for hold in taken), *(one.key for one in refused)]
        for key in (*keys, *([PAUSE] if pause else ()), *([RESET] if over else ())):
            self._control.write(key, None)
        return Resumed(taken, pause[0] if pause else None, refused, over, self._why_held(processor))

    def _refuse_moved(self) -> None:
        """Refuse to take back a reset where it may have moved some tasks and not others."""
        backing = {name: backing_topic(self._graph.name, name) for name in self._graph.all_processors}
        widths = self._broker.partitions(list(backing.values()))
        places = [TopicPartition(topic, p) for topic, width in widths.items() for p in range(width)]
        found = NewestRecords(self._broker, tools_group(self._graph.name), self._clock).look(
            self._broker.watermarks(places)
        )
        moved = [f"{at.topic}/{at.partition}" for at, one in found.items() if _moved_by_tool(one)]
        if moved:
            raise ConfigError(
                f"the newest record in {quoted(sorted(moved)[:SHOWN])} is that of a tool, so the reset may have moved "
                f"{count(len(moved), 'task')} and not the others: to go on now may lose or repeat messages. Run the "
                "reset to its end. If no reset was begun, add --yes."
            )

    def _why_held(self, processor: str | None) -> str:
        """Why tasks are held still; empty: nothing holds them."""
        control = self._control.read()
        if control.resetting:
            return (
                "a reset is not complete, and holds all tasks. Run it to its end; if no reset was begun, `cues-kafka "
                "resume MODULE:GRAPH --reset` takes it back"
            )
        held = [hold for name, hold in control.holds().items() if processor in (None, name)]
        paused = control.pause()
        if held or (paused and processor is None):
            return f"it is {held[0]}" if held else "a cut is being taken"
        return ""

    def close(self) -> None:
        """Release the clients."""
        self._view.close()
        self._control.close()

    def _names(self, processor: str | None) -> list[str]:
        known = [*self._graph.all_processors]
        if processor is None:
            return known
        if processor not in known:
            raise ConfigError(no_such_processor(self._graph.name, [processor], known))
        return [processor]

    def _not_paused(self, names: Sequence[str], token: str, since_s: float) -> dict[str, str]:
        """The tasks that have not told that they follow this pause, with the reason."""
        told, now_s = self._view.told(), self._clock.time()
        widths = self._broker.partitions([backing_topic(self._graph.name, name) for name in names])
        left: dict[str, str] = {}
        for name in names:
            found = {
                task: why
                for task in self._tasks(name, widths.get(backing_topic(self._graph.name, name), 0), told)
                if (why := _why(told.get(task), token, now_s))
            }
            if found and since_s >= UNMANNED_S and self._runs_nowhere(name, told, now_s):
                continue  # it stays paused when a worker starts
            left |= found
        return left

    @staticmethod
    def _tasks(name: str, width: int, told: Mapping[str, StatusRecord]) -> Iterator[str]:
        """The tasks of a processor; a staged one on Spark tells of as many slots as its batches have parts."""
        slots = [task for task in told if task.rpartition("/")[0] == name]
        spark = any(told[task].owner.runtime == "spark" for task in slots)
        yield from slots if spark else (f"{name}/{p}" for p in range(width))

    def _runs_nowhere(self, name: str, told: Mapping[str, StatusRecord], now_s: float) -> bool:
        heard = [one for task, one in told.items() if task.partition("/")[0] == name]
        if any(one.state != "left" and _is_heard(one, now_s) for one in heard):
            return False
        return not self._broker.members(group_id(self._graph.name, name))


def _is_heard(one: StatusRecord, now_s: float) -> bool:
    return now_s - one.told_s <= PERIODS * one.every_s


def _why(one: StatusRecord | None, token: str, now_s: float) -> str:
    """Why a task does not count as paused; empty: it does."""
    if one is None:
        return "it has not reported: its worker was started without status, or is starting"
    if one.unpausable and _is_heard(one, now_s):
        return f"{one.unpausable} ({one.owner})"
    if one.state == "left":
        return f"its worker {one.owner} has left, and no other worker has reported that it runs the task"
    if not _is_heard(one, now_s):
        return f"not heard of: {one.owner} may be dead or cut off"
    if one.pause == token and one.state in _RESTS:
        return ""
    calling = f", {one.calling}" if one.calling else ""
    follows = "it finishes its batch" if one.pause == token else "it has not read the pause yet"
    return f"{follows} on {one.owner}{calling}"
