"""Staged batches in a world: what Spark's drivers and tasks do, as transitions (T1 to T4).

A driver enters (D6), plans and stages its next batch, announces it or finds what was announced, waits for one task for
each part, and only then Spark commits the batch. Its announcement and the tasks' publications go through the same
transitions as any task's (`lanes`), with the same faults. Where `on_spark.staged.batch` and `.parts` stand:

- Planning and job 1 are one transition: their files are nothing before they are announced. Each attempt at a batch
  leaves rows of its own (`Staging.rows`). A driver takes only such files away as it knows were not announced.
- A driver that dies leaves its tasks behind: they go on (`lost`), until they are ended. So does a driver in whose
  place another one was started. Both end at no price, at any moment, and nothing that they do is calm.
- Where an earlier attempt was announced, the driver first looks whether all of its parts are out.
- A fenced task watches its record (D5); when it gives up, or a slot refuses, the driver ends with an error once all
  parts are heard of, and is started again. An operator follows a refusal and takes the checkpoint that wrote the newest
  batch, or puts the newest state of a restored one back.

- With the last message the input ends; then the current driver's batches are over, but for one without messages where
  T2 has still to refuse (`_nothing`).

Bounds: two drivers, three tasks at one part, of which the oldest ends; parts are entered one after the other; a lost
reply of Spark's own bookkeeping is a death before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from cues_kafka.core import effects as do
from cues_kafka.core.records import Staged
from cues_kafka.core.staged import Announce, Enter, Publish, Role, is_published
from tests.proof.model.staging import (
    ANNOUNCING,
    ENTERING,
    FAILED,
    OFF,
    OUT,
    PUBLISHED,
    PUBLISHING,
    READY,
    REFUSED,
    STOPPED,
    WAITING,
    Checkpoint,
    Driver,
    Spark,
    Staging,
    extent_of,
)
from tests.proof.model.states import (
    CRASH,
    MOVE,
    NET,
    ONGOING,
    ZOMBIE,
    Faults,
    Lane,
    Moves,
    Setting,
    State,
    Turn,
    counts,
    newest_below,
    put,
)


class StagedWorld(Staging):
    """A staged setting, and everything that can happen in it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._does |= {do.FetchParts: self._fetch_parts, do.Stop: self._watch}

    def _stages(self, s: State, out: Moves) -> Iterator[None]:
        """See `World`."""
        self._markers(s, out)
        self._ending(s, out)
        yield
        for d, driver in enumerate(self.spark(s).drivers):
            self._driving(s, d, driver, out)
        yield
        for w, worker in enumerate(self.workers(s)):
            for p, lane in enumerate(worker.lanes):
                if lane is not None:
                    effect = self.machine.effects.items[lane.effect]
                    self._does[type(effect)](Turn(s, w, p, lane, self._owner(s, w), out), effect)
                    yield
        if self.net(s):
            self._arriving(s, out)
        faults = self.faults(s)
        if faults.total:
            self._breaking(s, faults, out)
        yield

    def done(self, s: State) -> bool:
        """
        Whether all is published, and Spark knows it.

        What a zombie opened afterwards and left open is ended by the next batch's init, and there is none here.
        """
        spark, record = self.spark(s), self.newest(self.part(s, 0))
        if record is None or record.staged is None or any(part.phase > ONGOING for part in self.parts(s)):
            return False
        query, newest = spark.drivers[spark.current].query, record.staged
        known = (
            self.setting.stateless if newest.query != f"q{query}" else spark.checkpoints[query].committed > newest.batch
        )
        return known and spark.saved is None and extent_of(newest)[1] == self._end and self.whole(s, newest.number)

    def _owner(self, s: State, w: int) -> bool:
        """Whether it is the current driver's lane: what a zombie does is not calm."""
        return w != self._lost and w % self._drivers == self.spark(s).current

    def _is_member(self, s: State, w: int) -> bool:
        return True

    def _name(self, w: int, p: int) -> str:
        kind = ("driver", "task of driver", "lost task")[w // self._drivers]
        return f"{kind}/{p}" if w == self._lost else f"{kind} {w % self._drivers}/{p}"

    def _sent(self, send: do.SendOffsets) -> tuple[int, ...]:
        return tuple(int(extent.start) for extent in send.extents)

    # Slots: what lanes are told, and what comes of it.

    def _begun(self, s: State, w: int, p: int, role: Role) -> State:
        """A new slot, which takes its id next."""
        return self._tell(s, w, p, Lane(self.machine.new(self._slot(p, role))), "assigned", False)

    def _tell(self, s: State, w: int, p: int, lane: Lane, *key: Any) -> State:
        task, number = self.machine.tell(lane.task, key)
        effect = self.machine.effects.items[number]
        if key[0] == "failed" and key[2] and not isinstance(effect, do.Stop):
            s = self._wrong(s, p, "D5: a fenced slot goes on")
        if key[0] == "failed" and not (key[2] or self._owner(s, w)):
            return self._heard(self._put_lane(s, w, p, None), w, p, FAILED)
        anew = isinstance(effect, do.Init | do.Stop)
        lane = Lane(task, number, lane.session and not anew, () if anew else lane.carried)
        match effect, self._role(lane):
            case do.Await(), Publish(batch):
                return self._publishes(s, w, p, lane, batch)
            case do.Await(), role:
                return self._answered(self._put_lane(s, w, p, None), w, p, lane, role)
            case do.Stop(halt), Publish() if halt.kind != "fenced" or w == self._lost:
                return self._heard(self._put_lane(s, w, p, None), w, p, FAILED)
            case do.Stop(halt), Enter() | Announce():
                return self._failing(self._put_lane(s, w, p, None), w, refused=halt.kind == "refused")
        return self._put_lane(s, w, p, lane)

    def _role(self, lane: Lane) -> Role:
        role = self.task(lane).spec.staged
        assert role
        return role

    def _publishes(self, s: State, w: int, p: int, lane: Lane, batch: Staged) -> State:
        """T3: in one transaction, unless it is out."""
        if self.task(lane).published:
            return self._heard(self._put_lane(s, w, p, None), w, p, OUT)
        rows = self.rows(batch, p)
        if not rows:
            return self._tell(s, w, p, lane, "idle", ())
        return self._tell(s, w, p, lane._replace(carried=rows), "called", (), counts("o" * len(rows)), "")

    def _answered(self, s: State, w: int, p: int, lane: Lane, role: Role) -> State:
        driver, record = self.spark(s).drivers[w], self.task(lane).record
        newest = record.staged if record else None
        if isinstance(role, Announce):
            assert newest
            return self._publishing(s, w, driver, newest)
        if p == 0 and newest and newest.query != f"q{driver.query}":
            driver = driver._replace(begins=extent_of(newest)[1])
        if p + 1 < self.setting.partitions:
            return self._entering(self._put_driver(s, w, driver), w, p + 1)
        point = self.spark(s).checkpoints[driver.query]
        return self._put_driver(s, w, driver._replace(doing=READY, next=point.committed))

    def _entering(self, s: State, d: int, p: int) -> State:
        """D6: end what a predecessor left open, part by part."""
        driver = self.spark(s).drivers[d]
        query = f"q{driver.query}" if self.spark(s).checkpoints[driver.query].ends else ""
        return self._begun(s, d, p, Enter(query, self._stateless(), p))

    def _stateless(self) -> bool:
        return self.setting.stateless

    def _publishing(self, s: State, d: int, driver: Driver, announced: Staged) -> State:
        """T3: one task for each part of what was announced, be it ours or an earlier attempt."""
        mine = self.batches.items[driver.batch]
        driver = driver._replace(batch=self.batches.number(announced))
        parts = range(self.setting.partitions)
        if not self._same_attempt(mine, announced):
            s = self._dropped(s, mine)
            if all(self._seen(s, p, Publish(self._own(announced, p))) for p in parts):
                return self._put_driver(s, d, driver._replace(doing=PUBLISHED, settled=announced.number))
        if not announced.checksum:
            s = self._wrong(s, 0, "T2: what was announced names no manifest")
        s = self._put_driver(s, d, driver._replace(doing=PUBLISHING, told=(WAITING,) * len(parts)))
        for p in parts:
            s = self._begun(s, self._drivers + d, p, Publish(self._own(announced, p)))
        return s

    def _own(self, announced: Staged, p: int) -> Staged:
        """What a part's task is told of its batch."""
        return replace(announced, part=p, extents=announced.extents if p == 0 else ())

    def _dropped(self, s: State, batch: Staged) -> State:
        """Files are taken away; what may yet be committed of them is kept in mind."""
        opened = [entry >> 1 for entry in self.part(s, 0).log if entry >= 0]
        late = [message[2] for message in self.net(s) if message[0] == "record"]
        records = [self.machine.record(number).staged for number in opened + late]
        if not any(one and self._same_attempt(one, batch) for one in records):
            return s
        spark = self.spark(s)
        s = self._put_spark(s, spark._replace(dropped=(*spark.dropped, self.batches.number(batch))))
        newest = self.decided(s, 0)
        gone = newest is not None and newest.staged is not None and self._same_attempt(newest.staged, batch)
        return self._wrong(s, 0, "T1: the files of the announced batch were taken away") if gone else s

    def _heard(self, s: State, w: int, p: int, what: int) -> State:
        """A task's outcome; of a lost one no driver hears. A zombie that has failed does nothing more."""
        if w == self._lost:
            return s
        d = w % self._drivers
        if w == d:
            return self._failing(s, d, refused=False)
        driver = self.spark(s).drivers[d]
        told = put(driver.told, p, what)
        if WAITING in told:
            return self._put_driver(s, d, driver._replace(told=told))
        if FAILED in told:
            return self._failing(s, d, refused=False)
        settled = self.batches.items[driver.batch].number
        return self._put_driver(s, d, driver._replace(doing=PUBLISHED, told=(), settled=settled))

    def _failing(self, s: State, d: int, *, refused: bool) -> State:
        """The batch function raised, or the query did not start."""
        spark = self.spark(s)
        if d != spark.current:
            return self._put_driver(s, d, Driver())
        doing = REFUSED if refused else STOPPED
        return self._put_driver(s, d, Driver(doing, spark.drivers[d].query))

    def _fetch_watermark(self, turn: Turn, effect: Any) -> None:
        """
        R3 and R4 at one moment.

        Who has the id is alone in between. What another one reads is what it would have read at some moment in between,
        and a transaction of its own fails.
        """
        found: Moves = []
        super()._fetch_watermark(turn._replace(out=found), effect)
        for (who, high), calm, s in found:
            lane = self.worker(s, turn.w).lanes[turn.p]
            assert lane
            read: Moves = []
            self._read_newest(Turn(s, turn.w, turn.p, lane, calm, read), self.machine.effects.items[lane.effect])
            turn.out.extend(((who, f"{high}; {what}"), calm, after) for (_, what), _, after in read)

    def _fetch_parts(self, turn: Turn, fetch: do.FetchParts) -> None:
        """T2: up to the high watermark, so that an undecided publication is waited for."""
        s, w, p, lane, owner, out = turn
        numbers = [self._newest_number(s, part) for part in range(1, fetch.parts)]
        if None in numbers:
            after = self._failed(s, w, p, lane, "blocked")
            out.append(((self._name(w, p), "an open transaction blocks reading of a part"), owner, after))
            return
        settled = all(number == fetch.number for number in numbers)
        after = self._tell(s, w, p, lane, "parts", settled)
        # Who was fenced may find a newer publication there, and is refused for that: it writes nothing in any case.
        if not settled and self._current(s, w, p, lane) and self.whole(s, fetch.number):
            after = self._wrong(after, 0, "T2: a batch that is wholly published is taken for one that is not")
        out.append(((self._name(w, p), f"publication {fetch.number} is in all parts: {settled}"), owner, after))
        self._lose(s, w, p, lane, "newest records of the parts", ("lost", s), out=out)
        spent = self._spend(s, NET) if settled else None
        if spent is not None:
            told = self._tell(spent, w, p, lane, "parts", False)
            out.append(((self._name(w, p), "newest records of the parts, of a leader that is none"), False, told))

    def _newest_number(self, s: State, p: int) -> int | None:
        """Of the newest publication that a reader sees in a part, -1: there is none, None: a transaction is open."""
        log = self.part(s, p).log
        number = newest_below(log, self._parts_high(log))
        if number is None or number < 0:
            return number
        staged = self.machine.record(number).staged
        return staged.number if staged else -1

    def _parts_high(self, log: tuple[int, ...]) -> int:
        return len(log)

    def _watch(self, turn: Turn, stop: do.Stop) -> None:
        """D5: fenced; the slot that did it publishes this part, or the driver ends and starts again."""
        s, w, p, lane, owner, out = turn
        gone = self._put_lane(s, w, p, None)
        if self._seen(s, p, self._role(lane)):
            after = self._heard(gone, w, p, OUT)
            out.append(((self._name(w, p), "fenced, sees that its part is published"), owner, after))
            return
        out.append(((self._name(w, p), "fenced, gives up"), owner, self._heard(gone, w, p, FAILED)))

    def _seen(self, s: State, p: int, role: Role) -> bool:
        return is_published(role, self.newest(self.part(s, p)))

    # Drivers.

    def _driving(self, s: State, d: int, driver: Driver, out: Moves) -> None:
        owner = d == self.spark(s).current
        match driver.doing:
            case doing if doing in (OFF, STOPPED, REFUSED) and owner:
                self._starting(s, d, driver, out)
            case doing if doing == READY:
                self._planning(s, d, driver, owner, out)
            case doing if doing == PUBLISHED:
                after = self._committed(s, d, driver)
                out.append(((f"driver {d}", f"Spark commits batch {driver.next} in its checkpoint"), owner, after))

    def _starting(self, s: State, d: int, driver: Driver, out: Moves) -> None:
        """The current driver is started again; after a refusal with what its remedy asks for."""
        spark, record = self.spark(s), self.newest(self.part(s, 0))
        query = driver.query
        if driver.doing == REFUSED and record and record.staged:
            query = int(record.staged.query[1:])
            if spark.saved:
                points = put(spark.checkpoints, 0, spark.saved)
                s = self._put_spark(s, spark._replace(checkpoints=points, saved=None))
        out.append(((f"driver {d}", f"is started with the checkpoint of q{query}"), True, self._started(s, d, query)))

    def _started(self, s: State, d: int, query: int) -> State:
        return self._entering(self._put_driver(s, d, Driver(ENTERING, query)), d, 0)

    def _planning(self, s: State, d: int, driver: Driver, owner: bool, out: Moves) -> None:
        """What is planned already stays so; else up to `Setting.batch` messages, from the end of the batch before."""
        point, batch = self.spark(s).checkpoints[driver.query], driver.next
        if batch < len(point.ends):
            choices = [point]
        else:
            point = point if batch else point._replace(begins=driver.begins)
            start = point.ends[-1] if batch else point.begins
            ends = range(min(start + self.setting.batch, self._end), start, -1) or self._nothing(s, driver.query, owner)
            choices = [point._replace(ends=(*point.ends, end)) for end in ends]
        for chosen in choices:
            spark = self.spark(s)
            after = self._put_spark(s, spark._replace(checkpoints=put(spark.checkpoints, driver.query, chosen)))
            mine = self._staged(driver.query, batch, chosen.extent(batch), self._attempt(s, driver.query, batch))
            after = self._put_driver(after, d, driver._replace(doing=ANNOUNCING, batch=self.batches.number(mine)))
            after = self._begun(after, d, 0, Announce(mine, self._stateless(), driver.settled))
            text = f"stages batch {batch} of q{driver.query}, up to {chosen.ends[batch]}, attempt {mine.attempt}"
            out.append(((f"driver {d}", text), owner, after))

    def _nothing(self, s: State, query: int, owner: bool) -> range:
        """
        Where the current driver's next batch begins and ends when no message is left: it has none then.

        Unless T2 has still to refuse: after another query's batch that is not wholly published, or had the state.
        """
        record = self.newest(self.part(s, 0))
        newest = record.staged if record else None
        if not owner or newest is None or newest.query == f"q{query}":
            return range(0)
        return range(self._end, self._end + (not (self.setting.stateless and self.whole(s, newest.number))))

    def _attempt(self, s: State, query: int, batch: int) -> int:
        """A name that nothing else has: the first that neither a record nor anybody alive knows."""
        records = [self.machine.record(entry >> 1).staged for part in self.parts(s) for entry in part.log if entry >= 0]
        drivers = [self.batches.items[driver.batch] for driver in self.spark(s).drivers if driver.batch >= 0]
        lanes = [lane for worker in self.workers(s) for lane in worker.lanes if lane is not None]
        dropped = [self.batches.items[number] for number in self.spark(s).dropped]
        roles = [getattr(self._role(lane), "batch", None) for lane in lanes]
        known = {
            of.attempt
            for of in (*records, *drivers, *dropped, *roles)
            if of and (of.query, of.batch) == (f"q{query}", batch)
        }
        return next(number for number in range(len(known) + 1) if str(number) not in known)

    def _committed(self, s: State, d: int, driver: Driver) -> State:
        """T4: Spark commits a batch; only one that is wholly published, and just what was announced of it."""
        spark, batch = self.spark(s), self.batches.items[driver.batch]
        point = spark.checkpoints[driver.query]
        wrong = ""
        if not self.whole(s, batch.number):
            wrong = f"T4: Spark commits batch {batch.batch}, which is not wholly published"
        elif point.extent(driver.next) != extent_of(batch):
            wrong = f"T4: Spark commits {point.extent(driver.next)}, published is {extent_of(batch)}"
        point = point._replace(committed=max(point.committed, driver.next + 1))
        saved = spark.saved if spark.saved and spark.saved.committed > point.committed else None
        spark = spark._replace(checkpoints=put(spark.checkpoints, driver.query, point), saved=saved)
        after = driver._replace(doing=READY, next=driver.next + 1, batch=-1)
        return self._wrong(self._put_driver(self._put_spark(s, spark), d, after), 0, wrong)

    # Faults.

    def _ending(self, s: State, out: Moves) -> None:
        """A driver that was replaced, or a task that was lost, ends."""
        spark = self.spark(s)
        for d, driver in enumerate(spark.drivers):
            if d != spark.current and driver.doing != OFF:
                out.append(((f"driver {d}", "ends: another one is in its place"), True, self._gone(s, d)))
        for p, lane in enumerate(self.worker(s, self._lost).lanes):
            if lane is not None:
                out.append(((self._name(self._lost, p), "ends"), True, self._put_lane(s, self._lost, p, None)))

    def _gone(self, s: State, d: int) -> State:
        """A driver is no more; its tasks do not know it."""
        for p in range(self.setting.partitions):
            s = self._strayed(self._put_lane(s, d, p, None), self._drivers + d, p)
        return self._put_driver(s, d, Driver(OFF, self.spark(s).drivers[d].query if d == self.spark(s).current else 0))

    def _strayed(self, s: State, w: int, p: int) -> State:
        """A task goes on, and no driver waits for it."""
        lane = self.worker(s, w).lanes[p]
        if lane is None:
            return s
        part = self.part(s, p)
        if part.holder in (w, self._lost):
            s = self._put_part(s, p, part._replace(holder=self._lost if part.holder == w else -1))
        return self._put_lane(self._put_lane(s, w, p, None), self._lost, p, lane)

    def _breaking(self, s: State, faults: Faults, out: Moves) -> None:
        if faults.net:
            self._timing_out(s, out)
        spark = self.spark(s)
        for d, driver in enumerate(spark.drivers):
            for p, lane in enumerate(self.worker(s, self._drivers + d).lanes):
                if lane is not None:
                    self._task_breaking(s, self._drivers + d, p, lane, out)
            if faults.crash and driver.doing not in (OFF, STOPPED, REFUSED):
                spent = self._spend(s, CRASH)
                assert spent
                out.append(((f"driver {d}", "dies"), False, self._gone(spent, d)))
        if faults.move:
            self._moving_on(s, spark, out)

    def _moving_on(self, s: State, spark: Spark, out: Moves) -> None:
        match self.setting.checkpoints:
            case "restored":
                self._restoring(s, out)
            case "other" if spark.checkpoints[1] == Checkpoint():
                self._beside(s, 1, out)
            case "":
                self._beside(s, spark.drivers[spark.current].query, out)

    def _task_breaking(self, s: State, w: int, p: int, lane: Lane, out: Moves) -> None:
        """Spark starts a task again whose executor died, or is thought dead."""
        role = self._role(lane)
        for kind, text, before in (
            (CRASH, "dies, and is started again", s),
            (ZOMBIE, "is taken for lost, and started again", self._strayed(s, w, p)),
        ):
            spent = self._spend(before, kind)
            if spent is not None:
                out.append(((self._name(w, p), text), False, self._begun(spent, w, p, role)))

    def _beside(self, s: State, query: int, out: Moves) -> None:
        """Another driver is started while the current one lives on."""
        spark = self.spark(s)
        d = spark.current
        other = (d + 1) % self._drivers
        free = other != d and spark.drivers[other].doing == OFF
        if free and spark.drivers[d].doing not in (OFF, STOPPED, REFUSED):
            spent = self._spend(s, MOVE)
            if spent is not None:
                after = self._started(self._put_spark(spent, spark._replace(current=other)), other, query)
                out.append(((f"driver {other}", f"is started with q{query} while driver {d} goes on"), False, after))

    def _restoring(self, s: State, out: Moves) -> None:
        """The query ends, and goes on from an old copy of its checkpoint."""
        spark = self.spark(s)
        point = spark.checkpoints[0]
        for kept in range(len(point.ends)) if spark.saved is None else ():
            spent = self._spend(s, MOVE)
            if spent is not None:
                old = point._replace(ends=point.ends[:kept], committed=min(point.committed, kept))
                after = self._put_spark(spent, spark._replace(checkpoints=put(spark.checkpoints, 0, old), saved=point))
                text = f"puts back a copy of the checkpoint with {kept} batches"
                out.append((("operator", text), False, self._gone(after, spark.current)))
