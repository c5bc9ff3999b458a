"""The worlds, by name. `make test` explores each of them with few faults, `make proof-model` with more.

One partition is enough for most: tasks share nothing but the group's membership, because the transactional id, the
backing partition and the offsets belong to one task each. `two-tasks` has what they share. The parts of a staged batch
share the announcement, so staged worlds have two, of which part 1 gets no row of the second message; what is decided
by the announcement alone has one.
"""

from __future__ import annotations

from dataclasses import replace

from cues_kafka.core.strategies import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from tests.proof.model.ahead import AheadWorld
from tests.proof.model.bridges import BridgeAheadWorld, BridgeWorld
from tests.proof.model.dropping import DroppingWorld
from tests.proof.model.feeds import FeedWorld
from tests.proof.model.handlers import HandlerWorld
from tests.proof.model.loose import ChangedWorld, LooseWorld
from tests.proof.model.marking import MarkerWorld
from tests.proof.model.migrating import CHANGES, MigratedOutboxWorld, MigratedWorld
from tests.proof.model.outbox import OutboxWorld, TimedOutboxWorld
from tests.proof.model.parts import PartsWorld
from tests.proof.model.renaming import RenamedWorld
from tests.proof.model.replaying import ReplayWorld
from tests.proof.model.replays_ahead import ReplayAheadWorld
from tests.proof.model.staged import StagedWorld
from tests.proof.model.states import Faults, Setting
from tests.proof.model.tables import TableWorld
from tests.proof.model.tailed_outbox import TailedOutboxWorld
from tests.proof.model.tailing import TailWorld
from tests.proof.model.taking import TakingWorld
from tests.proof.model.timers import TimerWorld
from tests.proof.model.world import World

ONE = Faults(crash=1, move=1, net=1, zombie=1, total=1)
TWO = Faults(crash=2, move=2, net=2, zombie=1, total=2)
THREE = Faults(crash=2, move=2, net=2, zombie=1, total=3)

_STAGED = Setting(
    name="",
    about="",
    inputs=("oo", "on"),
    workers=("driver", "driver", "tasks", "tasks", "lost"),
    partitions=2,
    batch=1,
)

_ONE_PART = replace(_STAGED, inputs=("oo",), partitions=1)

_WORLDS = [
    Setting(name="alone", about="one worker that dies and loses requests", workers=("native",), inputs=("oo",)),
    Setting(name="pipe", about="two workers, one partition", inputs=("oo",)),
    Setting(name="three", about="three workers, one partition", inputs=("oo",), workers=("native",) * 3),
    Setting(name="reset", about="another program sets the group's offsets back", inputs=("oo",), resets=True),
    Setting(name="latest", about="an input that grows, read from its end", inputs=("ooo",), grows=2, start="latest"),
    Setting(name="intruder", about="another program writes into the backing partition", inputs=("oo",), intruder=True),
    Setting(name="two-tasks", about="two workers, two partitions", inputs=("o",), partitions=2),
    Setting(name="eager", about="rebalances take everything", inputs=("o",), partitions=2, eager=True),
    Setting(name="markers", about="markers and gaps among the messages", inputs=("o.o.",)),
    Setting(name="fork", about="several outputs of one message", inputs=("fn",)),
    Setting(name="error", about="a message that fails, one that may fail", inputs=("e?",)),
    Setting(
        name="effects", about="effects that user code guards itself, by step and owner", inputs=("oo",), effects=True
    ),
    Setting(name="retry", about="user code that asks to be called again", inputs=("ro",)),
    Setting(name="kill", about="a message that kills its process, in a batch", inputs=("oko",), batch=3),
    Setting(
        name="together",
        about="a message that kills its process, and one of another task in it that may be put off",
        inputs=("k",),
        others=("r",),
        workers=("native",),
        partitions=2,
        batch=1,
    ),
    Setting(
        name="together-later",
        about="a message that kills without a snapshot of its own, at first",
        inputs=("ok",),
        others=("oo",),
        workers=("native",),
        partitions=2,
        batch=1,
    ),
    Setting(name="stop", about="user code that stops its task on purpose", inputs=("os",)),
    Setting(
        name="join-fork",
        about="several outputs of one pair, and a message whose partner is not there",
        inputs=("fn", "o"),
        pairing="join",
    ),
    Setting(name="alts-fork", about="several outputs of any of two inputs", inputs=("f", "o"), pairing="alts"),
    Setting(
        name="join-sink",
        about="one message of each input, and no output but effects",
        inputs=("nn", "n"),
        pairing="join",
        effects=True,
    ),
    Setting(name="join", about="the k-th message of each input", inputs=("oo", "o"), pairing="join"),
    Setting(name="alts", about="any of two inputs", inputs=("o", "o"), pairing="alts"),
    Setting(name="alts-effects", about="the choice is kept", inputs=("o", "oo"), pairing="alts", effects=True),
    Setting(
        name="alts-retry",
        about="what a retry puts off keeps its step number",
        inputs=("or", "o"),
        pairing="alts",
        effects=True,
        workers=("native",),
    ),
    Setting(
        name="alts-turns",
        about="an input that never runs dry starves no other one",
        inputs=("oooo", "oo"),
        pairing="alts",
        workers=("native",),
        batch=1,
        turns=True,
    ),
    Setting(
        name="reordered",
        about="each second process declares the inputs in the other order, and delivers what was announced before",
        inputs=("ok", "o"),
        pairing="alts",
        workers=("native",),
        reorders=True,
    ),
    Setting(
        name="moved",
        about="an operator resets the tasks beside a worker that he believes stopped, and does so again",
        inputs=("o",),
        workers=("native", "tool"),
        partitions=2,
        batch=1,
        moves=2,
    ),
    Setting(
        name="moved-snapshot",
        about="a reset over a batch that is announced",
        inputs=("oo",),
        workers=("native", "tool"),
        moves=2,
    ),
    Setting(
        name="renamed",
        about="an operator gives a processor another name, beside workers of both",
        inputs=("oo",),
        workers=("native", "renamed", "tool"),
        partitions=2,
        batch=1,
        moves=9,
    ),
    Setting(
        name="renamed-two",
        about="the same with two tasks, whose worker has stopped",
        inputs=("o",),
        workers=("stopped", "renamed", "tool"),
        partitions=4,
        batch=1,
        moves=9,
    ),
    Setting(
        name="migrated",
        about="an operator adds an input, beside workers of both declarations",
        inputs=("oe", "o"),
        pairing="alts",
        workers=("native", "wider", "tool"),
        moves=9,
    ),
    Setting(
        name="migrated-drop",
        about="an operator drops an input, which has messages left",
        inputs=("on", "oo"),
        pairing="alts",
        workers=("native", "narrower", "tool"),
        moves=9,
    ),
    Setting(
        name="migrated-two",
        about="an input is added to two tasks, one after the other",
        inputs=("o", "o"),
        pairing="alts",
        workers=("native", "wider", "tool"),
        partitions=2,
        batch=1,
        moves=9,
    ),
    Setting(
        name="migrated-kill",
        about="an input is added to a task with a message that kills",
        inputs=("ok", "o"),
        pairing="alts",
        workers=("native", "wider", "tool"),
        moves=9,
    ),
    Setting(
        name="migrated-effects",
        about="an input is dropped, and effects keep the choice of messages that a retry puts off",
        inputs=("oo", "r"),
        pairing="alts",
        workers=("native", "narrower", "tool"),
        effects=True,
        moves=9,
    ),
    Setting(
        name="migrated-target",
        about="an input is added beside a target that may be ahead",
        inputs=("oo", "o"),
        pairing="alts",
        workers=("native", "wider", "tool"),
        batch=1,
        target=True,
        moves=9,
    ),
    Setting(
        name="compacted",
        about="compaction takes messages that are announced, and the one that kills",
        inputs=("oko",),
        workers=("native",),
        batch=3,
        compacts=2,
    ),
    Setting(
        name="store", about="a store, a message that fails and one that is called again", inputs=("oer",), stores=True
    ),
    Setting(
        name="store-kill", about="a store, and a message that kills", inputs=("oko",), stores=True, workers=("native",)
    ),
    Setting(
        name="store-alts",
        about="a store that any of two inputs changes",
        inputs=("o", "e"),
        pairing="alts",
        stores=True,
    ),
    Setting(
        name="handler",
        about="state in an object of the user's, and a message that may fail",
        inputs=("o?",),
        stores=True,
        handlers=True,
    ),
    Setting(
        name="handler-alone",
        about="the same in one worker, with messages that ask for a commit, and that may be called again",
        inputs=("c?r",),
        stores=True,
        handlers=True,
        workers=("native",),
    ),
    Setting(
        name="handler-kill",
        about="the same, and a message that kills",
        inputs=("oko",),
        stores=True,
        handlers=True,
        workers=("native",),
    ),
    Setting(name="table", about="a table whose partition the task looks up", inputs=("fr",), tables="own"),
    Setting(
        name="table-whole",
        about="a table that a process holds once, while its task leaves and comes back",
        inputs=("fr",),
        tables="whole",
        workers=("native",),
    ),
    Setting(
        name="table-shared",
        about="two tasks of a process, with one table",
        inputs=("f",),
        tables="whole",
        workers=("native",),
        partitions=2,
        batch=1,
    ),
    Setting(
        name="timers",
        about="timers that messages set, one of which fails",
        inputs=("oo",),
        stores=True,
        timers="10",
        fires="oe",
    ),
    Setting(
        name="timers-retry",
        about="a timer that is called again, and a message that fails and sets none",
        inputs=("oe",),
        workers=("native",),
        stores=True,
        timers="00",
        fires="ro",
    ),
    Setting(
        name="timers-kill",
        about="a timer that kills its process, in a batch",
        inputs=("oo",),
        workers=("native",),
        stores=True,
        timers="11",
        fires="ko",
    ),
    Setting(
        name="replay",
        about="an error that is replayed beside live traffic, and asked for twice",
        inputs=("eo",),
        replays=2,
        again="oo",
    ),
    Setting(
        name="replay-again",
        about="replays that fail, or give nothing, and the replay of what a replay left",
        inputs=("e",),
        workers=("native",),
        replays=3,
        again="?",
    ),
    Setting(
        name="replay-kill",
        about="a replay that kills its process",
        inputs=("eo",),
        workers=("native",),
        replays=2,
        again="ko",
    ),
    Setting(
        name="replay-state",
        about="a store, which a replay sees as it is now",
        inputs=("eo",),
        stores=True,
        replays=2,
        again="oo",
    ),
    Setting(
        name="replay-effects",
        about="effects by step and owner, and a replay that keeps its step number",
        inputs=("eo",),
        effects=True,
        replays=1,
        again="oo",
    ),
    Setting(
        name="replay-ahead",
        about="a replay beside messages that are called ahead of a commit",
        inputs=("eoo",),
        workers=("native",),
        batch=1,
        replays=1,
        again="ooo",
    ),
    Setting(
        name="drop",
        about="errors that are replayed or dropped, or both, beside live traffic, and a store",
        inputs=("eo",),
        workers=("native", "native", "dropper"),
        stores=True,
        replays=2,
        again="oo",
    ),
    Setting(
        name="drop-kill",
        about="the same, and a replay that kills its process",
        inputs=("eo",),
        workers=("native", "dropper"),
        replays=3,
        again="ko",
    ),
    Setting(
        name="outbox",
        about="a target that commits the attempt too, a message that may fail, and one with two outputs",
        inputs=("?f",),
        target=True,
    ),
    Setting(
        name="outbox-retry",
        about="the same in one worker, with a message that is called again",
        inputs=("?re",),
        workers=("native",),
        target=True,
    ),
    Setting(
        name="outbox-kill",
        about="the same, and a message that kills",
        inputs=("?k?",),
        workers=("native",),
        batch=3,
        target=True,
    ),
    Setting(
        name="outbox-alts",
        about="a target, and any of two inputs",
        inputs=("or", "n"),
        pairing="alts",
        target=True,
    ),
    Setting(
        name="outbox-compacted",
        about="a target, and compaction of what is announced",
        inputs=("oeo",),
        compacts=2,
        target=True,
    ),
    Setting(
        name="outbox-moved",
        about="a reset beside a worker that the operator believes stopped, while the target is ahead",
        inputs=("?o",),
        workers=("native", "tool"),
        batch=1,
        moves=2,
        target=True,
    ),
    Setting(
        name="outbox-moved-kill",
        about="the same, and a message that kills",
        inputs=("k",),
        workers=("native", "tool"),
        moves=1,
        target=True,
    ),
    Setting(
        name="outbox-restored",
        about="an old backup of the target is restored",
        inputs=("oe",),
        batch=1,
        target=True,
        restores=True,
    ),
    Setting(
        name="outbox-store",
        about="a target, and a store whose changes go through the outbox",
        inputs=("?o",),
        stores=True,
        target=True,
    ),
    Setting(
        name="outbox-timers",
        about="the same, and timers, one of which fails",
        inputs=("oe",),
        stores=True,
        timers="00",
        fires="eo",
        target=True,
    ),
    Setting(
        name="outbox-ahead",
        about="a target, and batches that are called ahead of Kafka's commit",
        inputs=("o?f",),
        batch=1,
        target=True,
    ),
    Setting(
        name="outbox-ahead-kill",
        about="the same in one worker, and a message that kills",
        inputs=("oook",),
        workers=("native",),
        batch=1,
        target=True,
    ),
    Setting(
        name="outbox-parts",
        about="a target that commits a batch in parts before Kafka's transaction",
        inputs=("o?f",),
        target=True,
    ),
    Setting(
        name="outbox-parts-moved",
        about="the same, and a reset beside a worker that the operator believes stopped",
        inputs=("n?o",),
        workers=("native", "tool"),
        moves=2,
        target=True,
    ),
    Setting(
        name="outbox-slots",
        about="a target, and two Spark slots for one range",
        inputs=("?o",),
        workers=("slot", "slot"),
        target=True,
    ),
    Setting(
        name="outbox-tailed",
        about="a target, and a tailed topic that grows, which a step that is called again must see as before",
        inputs=("oe",),
        batch=1,
        target=True,
        tailed=2,
        fixed_views=True,
    ),
    Setting(
        name="outbox-tailed-retry",
        about="the same in one worker, with a step that is put off",
        inputs=("or",),
        workers=("native",),
        target=True,
        tailed=2,
        fixed_views=True,
    ),
    Setting(name="feed", about="rows of a source, one of which fails", inputs=("oeo",), feed=True),
    Setting(name="feed-stop", about="a source that refuses behind its first rows", inputs=("?ors",), feed=True),
    Setting(
        name="feed-queue",
        about="a source that delivers again what was not acknowledged",
        inputs=("oeo",),
        feed=True,
        window=2,
    ),
    Setting(
        name="feed-queue-batch",
        about="the same with batches, in one worker",
        inputs=("ooo",),
        workers=("native",),
        feed=True,
        window=3,
    ),
    Setting(
        name="feed-queue-ahead",
        about="the same, where the next messages are read while a commit is under way",
        inputs=("ooo",),
        workers=("native",),
        feed=True,
        window=2,
    ),
    Setting(
        name="feed-queue-parts",
        about="two parts of one queue, each with a selector",
        inputs=("oo",),
        workers=("native",),
        partitions=2,
        feed=True,
        window=1,
    ),
    Setting(
        name="imperative",
        about="a tailed topic that grows, of which a step that is called again must see the same",
        inputs=("re",),
        tailed=2,
        fixed_views=True,
    ),
    Setting(
        name="imperative-alone",
        about="the same in one worker, which puts off a step behind others",
        inputs=("oro",),
        workers=("native",),
        tailed=2,
        fixed_views=True,
    ),
    Setting(
        name="imperative-kill",
        about="the same, and a message that kills",
        inputs=("oko",),
        workers=("native",),
        batch=3,
        tailed=2,
        fixed_views=True,
    ),
    Setting(name="imperative-free", about="a tailed topic, and views that may change", inputs=("feo",), tailed=2),
    Setting(
        name="imperative-itself",
        about="a tailer on the own input",
        inputs=("oe",),
        tailed=2,
        tails_itself=True,
    ),
    Setting(name="most", about="at-most-once, two workers", inputs=("oo",), strategy=AT_MOST_ONCE),
    Setting(
        name="most-alone",
        about="at-most-once in one worker, a message that fails and one that does not",
        inputs=("oeo",),
        workers=("native",),
        strategy=AT_MOST_ONCE,
    ),
    Setting(
        name="most-kill",
        about="at-most-once, and a message that kills its process",
        inputs=("oko",),
        workers=("native",),
        batch=3,
        strategy=AT_MOST_ONCE,
    ),
    Setting(
        name="most-stop",
        about="at-most-once, and user code that stops its task",
        inputs=("oso",),
        strategy=AT_MOST_ONCE,
    ),
    Setting(
        name="most-alts",
        about="at-most-once, any of two inputs",
        inputs=("o", "n"),
        pairing="alts",
        strategy=AT_MOST_ONCE,
    ),
    Setting(name="least", about="at-least-once, two workers", inputs=("oo",), strategy=AT_LEAST_ONCE),
    Setting(
        name="least-latest",
        about="at-least-once, an input that grows, read from its end",
        inputs=("ooo",),
        grows=2,
        start="latest",
        strategy=AT_LEAST_ONCE,
    ),
    Setting(
        name="changed",
        about="from at-least-once to exactly-once beside a worker that the operator believes stopped",
        inputs=("oo",),
        workers=("native", "native", "tool"),
        batch=1,
        moves=9,
        strategy=AT_LEAST_ONCE,
        changes="exactly-once",
    ),
    Setting(name="forgotten", about="a broker that comes back without a marker", inputs=("oe?",), forgets=True),
    Setting(
        name="forgotten-replay",
        about="the same behind a replay, which writes two records into the backing partition",
        inputs=("eo",),
        workers=("native",),
        replays=1,
        again="oo",
        forgets=True,
    ),
    Setting(name="slots", about="two Spark slots for one range", inputs=("oo",), workers=("slot", "slot")),
    Setting(name="both", about="a native worker and a Spark slot", inputs=("oo",), workers=("native", "slot")),
    replace(_STAGED, name="staged", about="a driver of Spark, its successors, and tasks of theirs that stay behind"),
    replace(_ONE_PART, name="staged-one", about="the same with one part"),
    replace(_STAGED, name="staged-other", about="another query without state takes over", checkpoints="other"),
    replace(_ONE_PART, name="staged-query", about="the same with one part", checkpoints="other"),
    replace(
        _ONE_PART,
        name="staged-state",
        about="another query with state is refused",
        checkpoints="other",
        stateless=False,
    ),
    replace(
        _ONE_PART,
        name="staged-restored",
        about="an old copy of the checkpoint",
        workers=("driver", "tasks", "lost"),
        batch=2,
        checkpoints="restored",
    ),
]

CALLED_AHEAD = {"outbox-ahead", "outbox-ahead-kill", "replay-ahead", "feed-queue-ahead"}
"""Worlds in which user code is called ahead of a commit."""

IN_PARTS = {"outbox-parts", "outbox-parts-moved"}
"""Worlds in which a target commits batches in parts."""

WORLDS = {setting.name: setting for setting in _WORLDS}


def with_faults(name: str, faults: Faults) -> Setting:
    """A world by its name, with this number of faults."""
    return replace(WORLDS[name], faults=faults)


def world_of(setting: Setting) -> World:
    """What a setting speaks of."""
    if setting.changes:
        return ChangedWorld(setting)
    if setting.strategy != EXACTLY_ONCE:
        return TakingWorld(setting) if setting.strategy == AT_MOST_ONCE else LooseWorld(setting)
    if setting.target and setting.tailed:
        return TailedOutboxWorld(setting)
    if setting.target and CHANGES & {*setting.workers}:
        return MigratedOutboxWorld(setting)
    if setting.target and not setting.timers:
        if setting.name in IN_PARTS:
            return PartsWorld(setting)
        return AheadWorld(setting) if setting.name in CALLED_AHEAD else OutboxWorld(setting)
    kinds: tuple[tuple[object, type[World]], ...] = (
        ("renamed" in setting.workers, RenamedWorld),
        (CHANGES & {*setting.workers}, MigratedWorld),
        (setting.handlers, HandlerWorld),
        (setting.tables, TableWorld),
        (setting.tailed, TailWorld),
        (setting.window and setting.name in CALLED_AHEAD, BridgeAheadWorld),
        (setting.window, BridgeWorld),
        (setting.feed, FeedWorld),
        (setting.target, TimedOutboxWorld),
        ("driver" in setting.workers, StagedWorld),
        (setting.forgets, MarkerWorld),
        ("dropper" in setting.workers, DroppingWorld),
        (setting.replays and setting.name in CALLED_AHEAD, ReplayAheadWorld),
        (setting.replays, ReplayWorld),
        (setting.timers, TimerWorld),
    )
    return next((kind for speaks, kind in kinds if speaks), World)(setting)


LEVELS = {1: ONE, 2: TWO, 3: THREE}
"""Faults by how many come together."""
