"""Rules of the shell, each with the small edit that takes it out and the tests that must notice.

The core's rules are the explorer's (`tests.proof.model`). A rule stands here once, in the file that holds it
up; where a second guard covers for it, the mutant would change nothing, and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

GUARDS = "tests/unit/runtime/task/test_guards.py"
SESSION = "tests/integration/test_kafka_adapter.py"
CONTRACT = "tests/contract/test_contract.py"
SUSPECT = "tests/fault/test_suspect_commits.py"
CLIENT = "tests/unit/brokers/kafka/test_client.py"
KEPT = "tests/unit/brokers/kafka/test_kept.py"
CRASHES = "tests/unit/runtime/task/test_crashes.py"
PAIRING = "tests/unit/runtime/calling/test_pairing.py"
RETRY = "tests/unit/runtime/calling/test_retry.py"
PLAIN = "tests/unit/runtime/calling/test_plain.py"
BAD_INPUT = "tests/integration/test_bad_input.py"
SLOT = "tests/unit/runtime/spark/direct/test_slot.py"
SLOT_INPUTS = "tests/unit/runtime/spark/direct/test_slot_inputs.py"
PARTS = "tests/unit/operate/test_staged.py"
STAGING = "tests/unit/runtime/spark/staged/test_files.py"
SUPERVISOR = "tests/integration/test_supervisor.py"
STATE = "tests/unit/runtime/test_state.py"
EXPIRING = "tests/unit/state/test_expiring.py"
AHEAD = "tests/unit/sinks/test_ahead.py"
HANDLERS = "tests/unit/runtime/test_handlers.py"
ON_DISK = "tests/unit/runtime/test_state_on_disk.py"
JOURNAL = "tests/unit/sinks/test_journal.py"
LAYERS = "tests/unit/state/test_layers.py"
TABLES = "tests/unit/runtime/test_tables.py"
TABLE_WAITS = "tests/unit/runtime/test_table_waits.py"
ROWS = "tests/unit/sinks/test_tables.py"
TIMERS = "tests/unit/runtime/test_timers.py"
SCHEDULED = "tests/unit/state/test_scheduled.py"
BLOBS = "tests/unit/sinks/test_blob_crashes.py"
LOSSES = "tests/unit/sinks/test_blob_losses.py"
OUTCOMES = "tests/unit/runtime/primitives/test_outcomes_of_transactions.py"
BATCHES = "tests/unit/sinks/test_blob_batches.py"
BATCH_FILES = "tests/unit/runtime/spark/staged/test_batch_files.py"
VERIFY = "tests/unit/verify/test_verify.py"
IMPERATIVE = "tests/unit/runtime/test_imperative.py"
FENCES = "tests/unit/sinks/test_fences.py"
DATABASE_PARTS = "tests/unit/sinks/test_parts.py"
TARGETS = "tests/unit/sinks/test_crashes.py"
CALLS = "tests/unit/sinks/test_calls.py"
CALLS_ALONE = "tests/unit/sinks/test_calls_alone.py"
REPLAYS = "tests/unit/runtime/test_replays.py"
FEEDS = "tests/unit/runtime/feeds/test_feeds.py"
FED_FILES = "tests/unit/bridges/test_files.py"
RESTORED = "tests/unit/bridges/test_restored_outbox.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """
    One rule taken out.

    Attributes:
        rule: what holds while the rule is there; unique.
        file: the file that has it, from the root.
        old: a piece of its text that it has once.
        new: what stands there instead.
        tests: what pytest is asked to run; one of them must fail.
    """

    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _session(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/brokers/kafka/session.py", old, new, tests)


def _client(rule: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, f"cues_kafka/runtime/primitives/{file}.py", old, new, tests or (OUTCOMES,))


def _reader(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/brokers/kafka/reader.py", old, new, tests)


def _member(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/brokers/kafka/member.py", old, new, tests)


def _interpreter(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/task/interpreter.py", old, new, tests)


def _pairing(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/calling/pairing.py", old, new, tests)


def _hands(rule: str, old: str, new: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/calling/imperative.py", old, new, (IMPERATIVE,))


def _lane(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/task/lane.py", old, new, tests)


def _called_ahead(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/task/ahead.py", old, new, tests)


def _calling(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/calling/caller.py", old, new, tests)


def _outputs(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/calling/outputs.py", old, new, tests)


def _worker(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/native/worker.py", old, new, tests)


def _supervisor(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/native/supervisor.py", old, new, tests)


def _intake(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/spark/direct/intake.py", old, new, tests)


def _slot(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/spark/direct/slot.py", old, new, tests)


def _sink(rule: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, f"cues_kafka/sinks/{file}.py", old, new, tests or (FENCES,))


def _feed(rule: str, old: str, new: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/feeds/lane.py", old, new, (FEEDS,))


def _rows(rule: str, old: str, new: str) -> Mutant:
    return Mutant(rule, "cues_kafka/sinks/rows.py", old, new, (ROWS,))


def _parts(rule: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(rule, "cues_kafka/runtime/spark/staged/part_slot.py", old, new, tests)


MUTANTS: tuple[Mutant, ...] = (
    # The client of a task's transactions.
    _session(
        "P5: a worker without a generation sends no offsets",
        "if group.generation < 0 and group.generation != OUTSIDE:",
        "if group.generation < -9:",
        CLIENT,
    ),
    _session(
        "P8: a commit that took as long as a request may take is suspect",
        "if took >= self._socket_timeout_s:",
        "if took < 0:",
        SUSPECT,
    ),
    _session(
        "P8: what the client logged during a commit makes it suspect",
        "return watch.suspicions[0] if watch.suspicions else None",
        "return None",
        SUSPECT,
    ),
    _session(
        "P8: a session that is thrown away ends its transaction",
        "self._let_go(abort=self._open and self._watch.fatal is None)",
        "self._let_go(abort=False)",
        f"{SESSION}::test_a_transaction_of_a_session_that_is_thrown_away_holds_up_no_reader",
    ),
    _session(
        "P6: the first record's place is told",
        "self.first_offset = message.offset()",
        "self.first_offset = None",
        f"{CONTRACT}::test_flush_counts_deliveries_and_names_the_first_offset",
    ),
    # The client that reads.
    _reader(
        "what came with an error is delivered before the error is raised",
        "if self._errors and not fetched:",
        "if self._errors:",
        CLIENT,
    ),
    _reader(
        "an end of a partition that messages follow is no end",
        "                ends.pop(place, None)\n",
        "",
        CLIENT,
    ),
    _reader(
        "a pause ends with its assignment",
        "        self.resume(self._paused.intersection(partitions))\n",
        "",
        f"{CONTRACT}::test_a_partition_that_was_paused_and_is_assigned_anew_is_not_paused_any_more",
    ),
    _reader(
        "an error of a partition that is not read any more is forgotten",
        "self._errors = [error for error in self._errors if error.at is None or error.at in self._assigned]",
        "pass",
        CLIENT,
    ),
    _reader(
        "what was fetched of a partition that is not read any more is dropped",
        "return {place: messages for place, messages in found.items() if place in self._assigned}",
        "return found",
        CLIENT,
    ),
    _reader(
        "nothing that comes behind a damaged message is delivered",
        "                broken.add(place)\n",
        "",
        CLIENT,
    ),
    # The membership.
    _member(
        "A3: a task is stopped before its revocation is acknowledged",
        """        try:
            if numbers:
                tell(numbers)
        finally:
            if self._cooperative:
                consumer.incremental_unassign([])
            else:
                consumer.unassign()
""",
        """        if self._cooperative:
            consumer.incremental_unassign([])
        else:
            consumer.unassign()
        if numbers:
            tell(numbers)
""",
        "tests/unit/brokers/kafka/test_member.py",
    ),
    _member(
        "A3: a callback of the group assigns nothing",
        "consumer.incremental_assign([])",
        "pass",
        f"{CONTRACT}::test_a_partition_moves_only_after_its_revocation_has_returned",
        f"{SESSION}::test_members_share_partitions_under_every_protocol",
    ),
    _member(
        "a member that closes gives up what it holds",
        "            self._listener.on_revoke(assigned)\n",
        "            pass\n",
        f"{SESSION}::test_a_static_member_that_restarts_has_its_partitions_at_once",
    ),
    # What a group has committed.
    Mutant(
        "R2: an error of one partition is not an absent offset",
        "cues_kafka/brokers/kafka/groups.py",
        "        if place.error is not None:\n",
        "        if False:\n",
        ("tests/unit/brokers/kafka/test_groups.py",),
    ),
    Mutant(
        "R2: offsets are asked stable",
        "cues_kafka/brokers/kafka/groups.py",
        "    stable: bool = True,\n",
        "    stable: bool = False,\n",
        (f"{CONTRACT}::test_a_stable_fetch_does_not_look_past_pending_offsets",),
    ),
    # Consumers that wait for the next reader.
    Mutant(
        "a kept consumer goes to a reader of its own name",
        "cues_kafka/brokers/kafka/kept.py",
        "if self._consumers[place].name == name:",
        "if True:",
        (KEPT,),
    ),
    Mutant(
        "in doubt about one kept consumer all are closed",
        "cues_kafka/brokers/kafka/kept.py",
        "            gone, self._consumers = self._consumers, []\n",
        "            gone: list[_Kept] = []\n",
        (KEPT,),
    ),
    # The newest record.
    Mutant(
        "R4: the newest record is found behind many aborted ones",
        "cues_kafka/records/reading.py",
        "if found is not None or start == low:",
        "if True:",
        ("tests/unit/records/test_reading.py",),
    ),
    Mutant(
        "R4: the last record of a window decides",
        "cues_kafka/records/reading.py",
        "                        found = message\n",
        "                        found = found or message\n",
        ("tests/unit/records/test_reading.py",),
    ),
    Mutant(
        "R4: an open transaction hides no record",
        "cues_kafka/records/reading.py",
        '    raise RetriableError(\n        f"nothing new below',
        '    if True:\n        return found\n    raise RetriableError(\n        f"nothing new below',
        (GUARDS, "tests/unit/records/test_reading.py"),
    ),
    # Effects of a task.
    _interpreter(
        "P6: the task's record is the first of its transaction",
        "        self._produced = self._open.produce((first,))\n"
        "        if isinstance(effect.record, Attempt) and effect.record.batch.deliveries:\n"
        "            self._produced += sum(map(self._open.produce, self._records))\n",
        "        self._produced = 0\n"
        "        if isinstance(effect.record, Attempt) and effect.record.batch.deliveries:\n"
        "            self._produced += sum(map(self._open.produce, self._records))\n"
        "        self._produced += self._open.produce((first,))\n"
        "        if isinstance(effect.record, Attempt) and effect.record.batch.deliveries:\n",
        CRASHES,
        SLOT,
    ),
    _interpreter(
        "a stopped task leaves no transaction open",
        "effect.halt.remedy, self.about)\n        self._note_failure()\n        self._abandon()\n",
        "effect.halt.remedy, self.about)\n        self._note_failure()\n",
        GUARDS,
    ),
    # From fetched messages to steps.
    _pairing(
        "a position moves over markers only where all before them is taken",
        "if not self.size and self.eof >= self.next_offset:",
        "if self.eof >= self.next_offset:",
        PAIRING,
        CRASHES,
        GUARDS,
    ),
    _pairing(
        "A2: a reader that goes back is found out",
        "if first < self.next_offset or last < first:",
        "if last < first:",
        GUARDS,
    ),
    _pairing(
        "an order of alts that was put back comes again",
        "self._order = self._choice(list(steps)) + self._order",
        "self._order = ()",
        GUARDS,
        RETRY,
    ),
    _pairing(
        "a join's steps that are put back keep their messages",
        "for queue, column in zip(self._queues, zip(*steps, strict=True), strict=False):",
        "for queue, column in zip(self._queues[:1], zip(*steps, strict=True), strict=False):",
        GUARDS,
        "tests/proof/test_any_schedule.py",
    ),
    Mutant(
        "a task stops before a key that another partitioner placed",
        "cues_kafka/runtime/calling/placed.py",
        "        if wrong is None:\n",
        "        if wrong is None or at >= 0:\n",
        ("tests/unit/brokers/test_placement.py",),
    ),
    # What strangers and former owners may not do.
    Mutant(
        "Y1: a request is proven by its error message",
        "cues_kafka/runtime/task/proving.py",
        "        if why := self._why_not(request, error, number):",
        "        if why := error.version and request.errors[:0]:",
        (REPLAYS,),
    ),
    _lane(
        "Y3: nothing is called ahead of a replay that comes next",
        "        if buffer and self._replay_comes_next(task, buffer):\n            return  # what",
        "        if buffer and not self._lock:\n            return  # what",
        REPLAYS,
    ),
    Mutant(
        "Y2: a recovery reads what is settled again",
        "cues_kafka/runtime/task/replaying.py",
        "        self._settled = None\n        self._proving",
        "        self._proving",
        (REPLAYS,),
    ),
    Mutant(
        "E3: nothing of a tool's entry is swept",
        "cues_kafka/sinks/blobs/target.py",
        "if entry.owner >= owner or entry.kind == SETTLED:",
        "if entry.owner >= owner:",
        (BLOBS,),
    ),
    Mutant(
        "E3: a former owner claims nothing above a later one",
        "cues_kafka/sinks/blobs/target.py",
        "if entry.step != step or entry.owner > owner:",
        "if entry.step != step:",
        (BLOBS,),
    ),
    Mutant(
        "E4: only entries below the position are left over",
        "cues_kafka/sinks/journal.py",
        "one.offset < place.offset:",
        "one.offset <= place.offset:",
        (JOURNAL,),
    ),
    Mutant(
        "E4: refused answers are forgotten with their step",
        "cues_kafka/sinks/journal.py",
        "            self._refused = {one for one in self._refused if one[0] not in done}\n",
        "",
        (JOURNAL,),
    ),
    Mutant(
        "R4b: a failed step gives its bytes back",
        "cues_kafka/state/layers.py",
        "            self._grown -= more\n            if before",
        "            if before",
        (LAYERS,),
    ),
    # The order of a task's work.
    _lane(
        "Q2a: a task that is given up while it asks to be alone keeps no other out",
        "        if takes and self.interpreter.gate.closed:",
        "        if False:",
        "tests/unit/runtime/task/test_alone.py",
    ),
    _lane(
        "Q2a: a task whose announced message is still to come stays alone",
        "            if takes and event is None and task.settled:",
        "            if takes and event is None:",
        "tests/unit/runtime/task/test_alone.py",
    ),
    _called_ahead(
        "P7: where effects are declared nothing is called ahead",
        "if task.state not in _WAITING or not task.pipelined or not self.held_alone:",
        "if task.state not in _WAITING or not self.held_alone:",
        GUARDS,
    ),
    _called_ahead(
        "P7: of several tasks in a process none is called ahead on a target",
        "(target.ahead and self.sole and self._context.calls is None)",
        "(target.ahead and self._context.calls is None)",
        AHEAD,
    ),
    _called_ahead(
        "P7: a target that locks more than rows is not called ahead on",
        "(target.ahead and self.sole and self._context.calls is None)",
        "(self.sole and self._context.calls is None)",
        AHEAD,
    ),
    _lane(
        "P7: a batch that is called ahead on a target begins behind the attempt that is being committed",
        "self._context.target.begin_batch(owner_of(task), task.next_base)",
        "self._context.target.begin_batch(owner_of(task), task.record.step)",
        AHEAD,
    ),
    _called_ahead(
        "P7: a target does not hold what is called ahead of a commit that takes long",
        "self._clock.monotonic() - batch.began_s >= HELD_S:",
        "self._clock.monotonic() < batch.began_s:",
        AHEAD,
    ),
    _lane(
        "P7: what a target holds ahead is committed before the pause of a retry",
        "if self._retrying and self._batch is None and self._clock",
        "if self._retrying and self._clock",
        AHEAD,
    ),
    _lane(
        "Q2a: what a target holds ahead is committed while another task is alone",
        "return self._heard(self._close_ahead, task, buffer, effect)",
        "return None",
        AHEAD,
    ),
    _lane(
        "a batch ends at the bytes of the commit policy",
        "batch.size >= self._policy.max_bytes)):",
        "False)):",
        GUARDS,
    ),
    _lane(
        "the pause before a retry doubles",
        "retry.first_s * 2.0 ** min(attempt, 64)",
        "retry.first_s",
        RETRY,
        GUARDS,
    ),
    _lane(
        "a task that stops again and again waits longer each time",
        "self._restart_s = min(self._restart_s * 2, RESTART_MAX_S)",
        "self._restart_s = RESTART_FIRST_S",
        GUARDS,
    ),
    _lane(
        "A2: what is called for an old buffer is late",
        "return self._worked_on is not self.buffer or state not in (Doing.READY, Doing.CALLING)",
        "return state not in (Doing.READY, Doing.CALLING)",
        GUARDS,
        "tests/proof/test_defects.py",
    ),
    # User code.
    _calling(
        "a message that cannot be decoded is never retried",
        'if isinstance(error, self._retry) and failure.kind != "decode":',
        "if isinstance(error, self._retry):",
        RETRY,
    ),
    _calling(
        "an error message is no output in the totals",
        "        batch.messages -= 1\n",
        "",
        CRASHES,
        PLAIN,
        VERIFY,
    ),
    _calling(
        "a retry ends after its time",
        "if now - since < retry.for_s:",
        "if now - since <= retry.for_s * 1000:",
        RETRY,
    ),
    _calling(
        "an output without a key keeps the task's partition",
        "keyless = batch.spec.partition % target.partitions",
        "keyless = 0",
        PLAIN,
    ),
    _calling(
        "what an error message has no room for gives way",
        "            origin.travelled = []\n",
        "            pass\n",
        f"{BAD_INPUT}::test_headers_and_keys_that_leave_no_room_do_not_stop_the_task",
    ),
    _calling(
        "a result among usual ones keeps its place",
        "                data, start = [], index + 1\n                self._add(",
        "                data, start = [], index\n                self._add(",
        PLAIN,
    ),
    _calling(
        "all records of a step are sent, or none",
        "for row in list(rows):",
        "for row in rows:",
        PLAIN,
    ),
    Mutant(
        "headers that cannot be read are asked for once",
        "cues_kafka/ports.py",
        "            messages[len(found)].set_headers(UNREADABLE)\n",
        "",
        (PLAIN,),
    ),
    # Outputs.
    _outputs(
        "a step's outputs have the latest time of its messages",
        "self.timestamp_ms = written_ms(max(message.timestamp()[1] for message in messages))",
        "self.timestamp_ms = written_ms(min(message.timestamp()[1] for message in messages))",
        PLAIN,
    ),
    _outputs(
        "an output for a partition that is not there is an error",
        "0 <= partition < target.partitions",
        "0 <= partition",
        PLAIN,
    ),
    _outputs(
        "a compacted topic needs a key",
        "if key is None and target.compacted:",
        "if False:",
        PLAIN,
    ),
    _outputs(
        "a timestamp that its topic refuses is an error",
        "if (late or target.older_ms is not None) and (why := target.untimely(when, now())):",
        "if (why := None):",
        PLAIN,
    ),
    _outputs(
        "a tombstone needs a key",
        "if value is None and given is None:",
        "if False:",
        PLAIN,
    ),
    Mutant(
        "columns of different lengths are refused",
        "cues_kafka/runtime/calling/outbox.py",
        "if len({len(column) for column in made}) > 1:",
        "if False:",
        ("tests/unit/runtime/calling/test_outbox.py",),
    ),
    # A processor in one process.
    _worker(
        "R6: a topic that was deleted and recreated stops its task",
        "if found is None or found.topic_id != position.topic_id:",
        "if found is None:",
        GUARDS,
    ),
    _worker(
        "A3: `left` is said under the generation that has begun",
        "        self._published = self._member.metadata()\n        deadline",
        "        deadline",
        GUARDS,
    ),
    _worker(
        "A2: a reader is pointed for the newest recovery only",
        "if lane.buffer is not buffer or lane.interpreter.gate.closed:",
        "if lane.interpreter.gate.closed:",
        GUARDS,
    ),
    # Processes.
    _supervisor(
        "a worker that no restart helps is given up",
        "if (code in GIVE_UP and not gives_way) or ",
        "if ",
        SUPERVISOR,
    ),
    _supervisor(
        "a login that is refused once a worker has lived is tried again",
        "(code == REFUSED and not self._let_in)",
        "code == REFUSED",
        SUPERVISOR,
    ),
    _supervisor(
        "a worker that dies again and again waits longer each time",
        "worker.backoff_s = min(worker.backoff_s * 2, MAX_BACKOFF_S)",
        "pass",
        SUPERVISOR,
    ),
    _supervisor(
        "a worker ends with its supervisor",
        "ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)",
        "pass",
        SUPERVISOR,
    ),
    _supervisor(
        "a worker whose supervisor died before it could ask ends",
        "if os.getppid() != parent:  # it",
        "if False:  # it",
        SUPERVISOR,
    ),
    # Direct slots of Spark.
    _intake(
        "D2: an end of the log below the range's end is no end",
        "over = last >= bound - 1 or (eof is not None and eof >= bound)",
        "over = last >= bound - 1 or eof is not None",
        SLOT,
    ),
    _intake(
        "D2: nothing at or past the end is delivered",
        "        if last >= bound:\n",
        "        if False:\n",
        SLOT,
    ),
    _intake(
        "a slot is not held up by an input that has nothing below its end",
        "if topic not in self._over and offset >= self._bounds[topic]:",
        "if False:",
        SLOT_INPUTS,
    ),
    _intake(
        "a slot pauses an input of a join that is a batch ahead",
        "        if begun := held - self._paused:\n",
        "        if begun := set[TopicPartition]():\n",
        SLOT_INPUTS,
    ),
    _intake(
        "a slot goes on with an input that it has paused",
        "        if ended := self._paused - held:\n",
        "        if ended := set[TopicPartition]():\n",
        SLOT_INPUTS,
    ),
    _intake(
        "a slot reads the input that a recorded choice names next",
        "        if self._turn(buffer, task):\n",
        "        if False:\n",
        SLOT_INPUTS,
    ),
    _slot(
        "D2: a slot reads beyond the end what a snapshot announced",
        "max(one.offset, bounds.get(one.topic, 0))",
        "bounds.get(one.topic, 0)",
        SLOT_INPUTS,
    ),
    _slot(
        "D2: a slot reads beyond the end what a recorded choice may name",
        "max(facts[binding].stable, bounds.get(topic, 0))",
        "bounds.get(topic, 0)",
        SLOT_INPUTS,
    ),
    _slot(
        "D2: a batch that was planned for other inputs delivers nothing of those that it misses",
        "{one.topic: ends.get(one.topic, 0) for one in self._spec.inputs}",
        "ends",
        "tests/unit/runtime/spark/direct/test_changed_inputs.py",
    ),
    Mutant(
        "D5: a range that a migration took away is not waited for",
        "cues_kafka/runtime/spark/query/slots.py",
        "if moved := _moved(task):",
        "if (moved := _moved(task)) and not moved:",
        ("tests/unit/runtime/spark/direct/test_changed_inputs.py",),
    ),
    Mutant(
        "D5: a request that another driver has announced is left to it",
        "cues_kafka/runtime/spark/query/replays.py",
        "if theirs is None:",
        "if theirs or theirs is None:",
        ("tests/unit/runtime/spark/direct/test_replay_slot.py",),
    ),
    Mutant(
        "Q1: a replay that was fenced did not die",
        "cues_kafka/runtime/spark/direct/plain.py",
        "if self._shows_fenced(partition) and (left := self.leave(partition)).kind:",
        "if self._shows_fenced(partition) and partition < 0 and (left := self.leave(partition)).kind:",
        ("tests/unit/runtime/spark/direct/test_replay_slot.py",),
    ),
    Mutant(
        "D3: a join is delivered when one input has nothing left",
        "cues_kafka/runtime/spark/query/slots.py",
        'any(through) if spec.pairing == "join" else',
        "all(through) if spec.pairing else",
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D3: alts are delivered when no input has anything left",
        "cues_kafka/runtime/spark/query/slots.py",
        'any(through) if spec.pairing == "join" else',
        'any(through) if spec.pairing != "single" else',
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D1: a join goes back to its records only where each input is behind",
        "cues_kafka/runtime/spark/source/ranges.py",
        "for place in due(self._given.pairing, inputs, places.intersection(inputs))",
        "for place in places.intersection(inputs)",
        ("tests/spark/test_ranges.py",),
    ),
    Mutant(
        "D5: the record must show this range delivered",
        "cues_kafka/runtime/spark/query/slots.py",
        "if is_delivered(spec, task.positions, ends):",
        "if task.record:",
        (SLOT,),
    ),
    _slot(
        "D6: what native workers run is left alone",
        "if members := self._broker.members(self._spec.group):",
        "if (members := self._broker.members(self._spec.group)) and not members:",
        SLOT,
    ),
    _intake(
        "a batch of a slot is bounded by bytes",
        "return ready >= self._policy.max_messages or held >= self._policy.max_bytes",
        "return ready >= self._policy.max_messages",
        SLOT,
    ),
    # Staged parts of Spark.
    _parts(
        "T3: a part is published as it was announced, to the byte",
        "if checksum(payload).hex() != expected[count].checksum:",
        "if False:",
        PARTS,
        STAGING,
    ),
    _parts(
        "T3: a part is published whole",
        "        if count < len(expected):\n",
        "        if False:\n",
        PARTS,
        STAGING,
    ),
    _parts(
        "D5: a fenced part succeeds when its record shows it published",
        "if is_published(role, record) and record:",
        "if False and record:",
        PARTS,
        "tests/unit/runtime/spark/staged/test_part_slot.py",
    ),
    _parts(
        "a batch goes to the topics that it was announced for",
        "        if gone:\n            now",
        "        if False:\n            now",
        PARTS,
        STAGING,
    ),
    Mutant(
        "T4: a newer batch is never deleted",
        "cues_kafka/runtime/spark/staged/files.py",
        "if older.isdigit() and int(older) < batch:",
        "if older.isdigit() and int(older) != batch:",
        (STAGING,),
    ),
    Mutant(
        "an announced file that is gone is named before Spark reads it",
        "cues_kafka/runtime/spark/staged/files.py",
        "            if found.get(name) != length:\n",
        "            if False:\n",
        (STAGING,),
    ),
    Mutant(
        "a manifest that was altered is refused",
        "cues_kafka/runtime/spark/staged/files.py",
        "if checksum(data) != expected:",
        "if False:",
        (STAGING,),
    ),
    # Stores and tables.
    Mutant(
        "R4b: what was read of a changelog ends as the record says",
        "cues_kafka/runtime/task/restoring.py",
        "        if one.place.step != step:\n",
        "        if False:\n",
        (f"{STATE}::test_a_changelog_that_has_lost_its_messages_stops_the_task",),
    ),
    Mutant(
        "R4b: a store that the record does not name begins empty",
        "cues_kafka/runtime/task/restoring.py",
        "        if step is None and one.place.step is not None:\n",
        "        if False:\n",
        (f"{STATE}::test_entries_of_another_task_are_refused",),
    ),
    Mutant(
        "a failed step changes no store",
        "cues_kafka/runtime/calling/caller.py",
        "        if context.stores is not None and called:\n            context.stores.undo_step()\n",
        "",
        (STATE,),
    ),
    Mutant(
        "steps that are called one by one leave nothing of the call for all of them",
        "cues_kafka/runtime/calling/caller.py",
        "        batch.back_to(before)\n        if batch.context.stores is not None:\n"
        "            self._end_frames(error)\n            batch.context.stores.undo_step()\n",
        "",
        (STATE,),
    ),
    Mutant(
        "R4b: entries of a changelog that was recreated are no whole store",
        "cues_kafka/runtime/task/restoring.py",
        '        if one.written_to not in (b"", one.place.topic_id):\n',
        "        if False:\n",
        (STATE,),
    ),
    Mutant(
        "R4b: a file that stands beyond the changelog's end is wiped",
        "cues_kafka/runtime/task/restoring.py",
        "    if place.offset > high:\n",
        "    if False:\n",
        (ON_DISK,),
    ),
    Mutant(
        "R4b: a file that may lack a deletion is wiped",
        "cues_kafka/runtime/task/restoring.py",
        "    return abs(found.asked_ms - one.place.proven_ms) >= found.retention_ms / 2\n",
        "    return False\n",
        (ON_DISK,),
    ),
    Mutant(
        "a handler with traces of a step that raised is reset before the others are called again",
        "cues_kafka/runtime/task/handling.py",
        "        handlers.reset(counts=counts)\n    except",
        "        pass\n    except",
        (HANDLERS,),
    ),
    Mutant(
        "the error of a step is committed without its traces in a handler",
        "cues_kafka/runtime/calling/caller.py",
        "            handlers.reset(counts=False)",
        "            pass",
        (HANDLERS,),
    ),
    Mutant(
        "a batch whose handler failed is not committed",
        "cues_kafka/runtime/task/handling.py",
        "    batch.back_to(EMPTY)\n    batch.ends, batch.cause",
        "    batch.ends, batch.cause",
        (HANDLERS,),
    ),
    Mutant(
        "a step that is retried begins with handlers as they were",
        "cues_kafka/runtime/calling/caller.py",
        "        if failure.kind not in UNDECODED and not self._handlers_fit(error, batch):\n",
        "        if not isinstance(error, self._retry) and not self._handlers_fit(error, batch):\n",
        (HANDLERS,),
    ),
    Mutant(
        "what was drained is counted",
        "cues_kafka/runtime/calling/caller.py",
        "        batch.drained += len(rows)\n",
        "        batch.drained += 0\n",
        (HANDLERS,),
    ),
    Mutant(
        "Q2a: a task that an outage stops stays alone until it has said left",
        "cues_kafka/runtime/task/lane.py",
        "                if self.task.settled and not self.task.left_due:",
        "                if self.task.settled:",
        (
            "tests/unit/runtime/task/test_guards.py::test_a_task_that_an_outage_stops_stays_alone_until_it_has_said_left",
        ),
    ),
    Mutant(
        "P7: nothing is called ahead on a handler",
        "cues_kafka/runtime/task/ahead.py",
        "return self.failed is not None or self._context.handlers is not None",
        "return self.failed is not None",
        (HANDLERS,),
    ),
    Mutant(
        "P8: a recovery resets the handlers",
        "cues_kafka/state/handlers.py",
        "        return replace(self, due=True, initial=initial, retiring=None)\n",
        "        return replace(self, initial=initial, retiring=None)\n",
        (HANDLERS,),
    ),
    Mutant(
        "P8: a void batch changes no store",
        "cues_kafka/state/layers.py",
        "            self._below, self._batch = (), None\n",
        "            self._batch = None\n",
        (LAYERS,),
    ),
    Mutant(
        "F4: a timer that failed is removed with its step",
        "cues_kafka/runtime/calling/caller.py",
        "timers.end(fired.set)  # the failure has taken back what the step did\n",
        "timers.end(fired.set._replace(due_ms=0))\n",
        (TIMERS,),
    ),
    Mutant(
        "F3: an announced batch of messages ends where a timer is due",
        "cues_kafka/runtime/calling/caller.py",
        "                if self._fire is not None and not self.fire(batch, batch.most - batch.deliveries):\n",
        "                if self._fire is not None and batch.most and not self.fire(batch, batch.most):\n",
        (TIMERS,),
    ),
    Mutant(
        "F2: a batch that is void brings its timers back",
        "cues_kafka/state/scheduled.py",
        "        super().discard()\n        self._stale = True",
        "        super().discard()\n        self._stale = False",
        (SCHEDULED,),
    ),
    Mutant(
        "F2: a step that is undone brings its timers back",
        "cues_kafka/state/scheduled.py",
        "            for key in keys:\n                heappush(self._heap, key)\n\n    def discard",
        "            pass\n\n    def discard",
        (SCHEDULED,),
    ),
    Mutant(
        "F3: due timers are announced before messages",
        "cues_kafka/runtime/task/lane.py",
        "(task.due.timers if task.due else timers.due is not None)",
        "(task.due.timers if task.due else False)",
        (TIMERS,),
    ),
    Mutant(
        "F1: the time of messages is rolled back with their step",
        "cues_kafka/state/expiring.py",
        "        super().undo_step()\n        self._turn_to(self._before)\n",
        "        super().undo_step()\n",
        (TIMERS, EXPIRING),
    ),
    Mutant(
        "P7: a call ahead sees the changes of the batch before",
        "cues_kafka/state/layers.py",
        "            if key in changes:\n                return changes[key]\n",
        "            pass\n",
        (LAYERS,),
    ),
    Mutant(
        "a failed step moves no time",
        "cues_kafka/state/expiring.py",
        "        super().undo_step()\n        self._turn_to(self._before)\n",
        "        super().undo_step()\n",
        (EXPIRING,),
    ),
    Mutant(
        "an entry that was set again outlives its first lifetime",
        "cues_kafka/state/expiring.py",
        "                if value is not None and self._alive(value, self.time) is None:\n",
        "                if value is not None:\n",
        (EXPIRING,),
    ),
    Mutant(
        "what a void batch swept is swept again",
        "cues_kafka/state/expiring.py",
        "                    self._buckets.setdefault(bucket, _Bucket()).extend(keys)\n",
        "                    pass\n",
        (EXPIRING,),
    ),
    Mutant(
        "a table is read to its end before the first call",
        "cues_kafka/runtime/task/following.py",
        "if self._read[place].offset < ends[place]]",
        "if False]",
        (TABLES,),
    ),
    Mutant(
        "a task that comes back reads its tables to their end",
        "cues_kafka/runtime/task/following.py",
        "            while left := [place for place in wanted",
        "            while left := [place for place in missing",
        (TABLES,),
    ),
    Mutant(
        "a task does not go on with a table that is no longer read",
        "cues_kafka/runtime/task/following.py",
        "                if not all(map(self._is_read, places_of(spec, partition))):\n",
        "                if False:\n",
        (TABLES,),
    ),
    Mutant(
        "a call waits until its table is read up to its end",
        "cues_kafka/runtime/task/waiting.py",
        "        while left:\n",
        "        while False:\n",
        (TABLE_WAITS,),
    ),
    Mutant(
        "an end behind markers is looked for by a second reader",
        "cues_kafka/runtime/task/following.py",
        "            if self._reader is not None and not self._poll(timeout_s):\n",
        "            if self._reader is not None and self._poll(timeout_s) and False:\n",
        (TABLE_WAITS,),
    ),
    Mutant(
        "what the second reader took is not taken again",
        "cues_kafka/runtime/task/following.py",
        "            if message.offset() < held.offset:\n",
        "            if False:\n",
        (TABLE_WAITS,),
    ),
    # Tables of a database.
    _rows(
        "E2: an older message does not replace a row",
        " OR held.{OFFSET} <= excluded.{OFFSET}",
        " OR TRUE",
    ),
    _rows(
        "E2: the same message replaces its own row",
        "held.{OFFSET} <= excluded.{OFFSET}",
        "held.{OFFSET} < excluded.{OFFSET}",
    ),
    _rows(
        "E2: a message of another source replaces a row",
        " OR held.{SOURCE} <> excluded.{SOURCE}",
        "",
    ),
    _rows(
        "E2: an older message deletes no row",
        "{SOURCE} <> ? OR {OFFSET} <= ?)",
        "{SOURCE} <> ? OR {OFFSET} <= ? OR TRUE)",
    ),
    _rows(
        "E2: rows of a step that is taken back are forgotten",
        "        self._drop_rows()\n        super().back()",
        "        super().back()",
    ),
    _rows(
        "E2: rows of a batch that is void are forgotten",
        "        self._drop_rows()\n        super().mark()",
        "        super().mark()",
    ),
    _calling(
        "E2: a row names the message of its own call",
        "batch.context.placed([self._place_of(received, batch)])",
        "pass",
        ROWS,
    ),
    Mutant(
        "E2: an input with more partitions than before is refused",
        "cues_kafka/plan/refusals.py",
        "        yield from _split_rows(graph.processors[one.name], one, facts)\n",
        "",
        (ROWS,),
    ),
    # Tools.
    Mutant(
        "X2: `reset` moves nothing while the group has members",
        "cues_kafka/operate/move/holding.py",
        "        if members := broker.members(group):\n",
        "        if members := []:\n",
        ("tests/unit/operate/test_moving.py",),
    ),
    Mutant(
        "verify sees a fork or a join out of order",
        "cues_kafka/verify/ledger.py",
        "        if offset < self.last:\n            self.disorder(offset)\n",
        "",
        (VERIFY,),
    ),
    Mutant(
        "E3: an entry is put only where there is none",
        "cues_kafka/sinks/blobs/store.py",
        "                    os.link(aside, goal)\n",
        "                    aside.replace(goal)\n",
        (BLOBS,),
    ),
    Mutant(
        "E3: a recovery puts a claim",
        "cues_kafka/sinks/blobs/target.py",
        "if self._asked(self.log.append, number, claim):",
        "if number >= 0:",
        (BLOBS,),
    ),
    Mutant(
        "E3: a sweep leaves what is committed",
        "cues_kafka/sinks/blobs/target.py",
        'if not (sweep.keep and path.startswith(f"{sweep.keep}/")):',
        "if path:",
        (BLOBS,),
    ),
    Mutant(
        "E3: the entry is put when all uploads have ended",
        "cues_kafka/sinks/blobs/target.py",
        "                self._asked(one.upload.result)\n",
        "                self._asked(one.upload.done)\n",
        (BLOBS,),
    ),
    Mutant(
        "E3: an entry needs the one before it",
        "cues_kafka/sinks/blobs/entries.py",
        'after=self.place(former) if number else "")',
        'after="")',
        (LOSSES,),
    ),
    Mutant(
        "E3: readers stop at a lost entry",
        "cues_kafka/sinks/blobs/entries.py",
        "                if segment is None and number <= top[0]:\n",
        "                if segment is None and number < 0:\n",
        (LOSSES,),
    ),
    Mutant(
        "E3: a task stops at a lost entry",
        "cues_kafka/sinks/blobs/entries.py",
        "        if found.gap is not None:\n            raise found.gap\n",
        "",
        (LOSSES,),
    ),
    Mutant(
        "E3: what is given up behind a gap does not count",
        "cues_kafka/sinks/blobs/target.py",
        "        voids = (*top.voids, (found.gap.number, number)) if found.gap else top.voids\n",
        "        voids = top.voids\n",
        (LOSSES,),
    ),
    Mutant(
        "E3: the marker is looked at before each batch and each commit",
        "cues_kafka/sinks/blobs/target.py",
        "        self._asked(self._known.glance, self.store)\n",
        "        self.store  # noqa: B018\n",
        (LOSSES,),
    ),
    Mutant(
        "E3: only the first start makes the store",
        "cues_kafka/runtime/prepare.py",
        "        first = created is None or set(checks.backing_topics(graph, store)) <= set(created)\n",
        "        first = True\n",
        (LOSSES,),
    ),
    Mutant(
        "E3: the directory of a store is not made again",
        "cues_kafka/sinks/blobs/store.py",
        "    if path == root:\n        raise FileNotFoundError",
        "    if path == path.parent:\n        raise FileNotFoundError",
        (LOSSES,),
    ),
    _client(
        "K1: after an error a holder looks whether it still is one",
        "writing",
        "                if self._used:\n",
        "                if not self._id:\n",
    ),
    _client(
        "K1: who takes an id writes its record first",
        "handles",
        '                    held.store({CLIENT_KEY: (0, b"")})\n',
        "",
    ),
    _client(
        "K2: after an error of a commit the log is asked",
        "writing",
        "            if not self._committed(error, place, decide):\n",
        "            if not self._id or not decide:\n",
    ),
    _client(
        "K3: the newest place says whether a tailer's transaction is committed",
        "places",
        "offsets=offsets, group=group, decide=self._decided\n",
        "offsets=offsets, group=group, decide=lambda: False\n",
    ),
    _client(
        "K3: a tailer whose transaction fails stands at its place",
        "transaction",
        "            except BaseException:\n                self._set_back()\n                raise\n",
        "            except BaseException:\n                raise\n",
    ),
    _client(
        "K4: the id is taken before the log is asked",
        "handles",
        "        self.take_id()  # K4",
        "        # K4",
    ),
    _client(
        "K4: an id is looked for up to the high watermark",
        "asking",
        "(max(starts[place], mark.low), mark.high)",
        "(max(starts[place], mark.low), mark.stable)",
        "tests/integration/test_primitives.py",
    ),
    Mutant(
        "E5: the entry is put before the parts",
        "cues_kafka/runtime/spark/staged/batch.py",
        "            self._commit_files(announced, manifest, staged_here=staged_here)\n"
        "            return manifest, self._publish(staging, announced, manifest)\n",
        "            outcomes = self._publish(staging, announced, manifest)\n"
        "            self._commit_files(announced, manifest, staged_here=staged_here)\n"
        "            return manifest, outcomes\n",
        (BATCH_FILES,),
    ),
    Mutant(
        "E5: files of an announced batch are there before its entry",
        "cues_kafka/runtime/spark/staged/batch.py",
        "if not staged_here and (missing := files.missing(batch)):",
        "if missing := [][:1]:",
        (BATCH_FILES,),
    ),
    Mutant(
        "E5: an older driver puts no entry",
        "cues_kafka/sinks/blobs/batches.py",
        "            if tail and tail[1].step >= batch.number:",
        "            if tail and tail[1].step == batch.number:",
        (BATCHES,),
    ),
    Mutant(
        "E5: one attempt has a publication number",
        "cues_kafka/sinks/blobs/batches.py",
        "        if found.attempt != attempt:",
        "        if not found:",
        (BATCHES,),
    ),
    Mutant(
        "E5: a driver compares the store with Kafka before its first batch",
        "cues_kafka/sinks/blobs/batches.py",
        "        if kafka and kafka.published and not kafka.reset and top < number:",
        "        if not number:",
        (BATCHES,),
    ),
    Mutant(
        "E5: a claim stands for a reset",
        "cues_kafka/sinks/blobs/batches.py",
        "        if kafka and kafka.reset and kafka.number > self.top:",
        "        if not self:",
        (BATCHES,),
    ),
    Mutant(
        "E5: what is committed is not cleaned up",
        "cues_kafka/sinks/blobs/batches.py",
        "            if path not in kept and not",
        "            if not",
        (BATCHES,),
    ),
    Mutant(
        "E5: each run of a Spark task has names of its own",
        "cues_kafka/runtime/spark/staged/file_rows.py",
        'f"{prefix}-{secrets.token_hex(8)}"',
        "prefix",
        (BATCH_FILES,),
    ),
    Mutant(
        "E5: the rows of files are counted once",
        "cues_kafka/runtime/spark/staged/publish.py",
        "in_files = 0 if part else self.in_files",
        "in_files = 0",
        (BATCH_FILES,),
    ),
    _hands(
        "L1: moves of a step that failed are taken back",
        "        self._standing.offsets.update(self._before)\n",
        "",
    ),
    _hands(
        "L1: appended messages come before the outputs",
        "        return [*self._appended, *outputs]\n",
        "        return [*outputs, *self._appended]\n",
    ),
    _hands(
        "L2: places are copied when a batch is closed",
        "        return tuple(p._replace(offset=self.offsets[p.binding]) for p in self._positions)\n",
        "        return self._positions\n",
    ),
    _hands(
        "L3: an empty poll does not say that nothing is there",
        "            if self._ahead or self._reach >= bound:\n",
        "            if self._ahead or self._reach >= 0:\n",
    ),
    _hands(
        "L3: a seek points the reader again",
        "                pointed = self._pointed and self._from <= offset <= self._reach\n",
        "                pointed = self._pointed\n",
    ),
    _hands(
        "L3: an outage voids the batch, whatever the function makes of it",
        "            self._hands.note(outage)\n",
        "",
    ),
    _hands(
        "S5: a call sees no message behind the ends",
        "        self._ends = {p.binding: p.offset for p in ends}\n",
        "        self._ends = {}\n",
    ),
    _lane(
        "L2: the place of the batch is that of its own steps",
        "            batch.tails = self._worked_on.standing.positions\n",
        "            batch.tails = self.task.record.tails if self.task.record else ()\n",
        IMPERATIVE,
    ),
    _lane(
        "S5: a step that was put off is a batch of its own",
        "1 if task.step_by_step else self._worth_announcing()",
        "1 if task.careful else self._worth_announcing()",
        IMPERATIVE,
    ),
    Mutant(
        "S5: a batch is announced with last stable offsets",
        "cues_kafka/runtime/calling/imperative.py",
        "    return tuple(p._replace(offset=marks[places[p.binding]].stable) for p in tails)\n",
        "    return tuple(p._replace(offset=marks[places[p.binding]].high) for p in tails)\n",
        (IMPERATIVE,),
    ),
    # Databases.
    _sink(
        "E1: a batch begins at the step of its row",
        "sql",
        "row is None or row[1] != step or row[2] > owner",
        "row is None or row[2] > owner",
    ),
    _sink(
        "E1: a batch of a former owner does not begin",
        "sql",
        "row is None or row[1] != step or row[2] > owner",
        "row is None or row[1] != step",
    ),
    _sink(
        "E1: a recovery makes the row its own",
        "sql",
        "            elif row is not None and step in row[:2] and row[2] < owner:\n",
        "            elif row is not None and row[1] < step:\n",
    ),
    _sink(
        "E1: a recovery makes a row its own that is an attempt ahead, too",
        "sql",
        "            elif row is not None and step in row[:2] and row[2] < owner:\n",
        "            elif row is not None and row[1] == step and row[2] < owner:\n",
    ),
    _sink(
        "E1: a recovery leaves a row that is elsewhere as it is",
        "sql",
        "            elif row is not None and step in row[:2] and row[2] < owner:\n",
        "            elif row is not None and row[2] < owner:\n",
    ),
    _lane(
        "E1: the next part begins where the part before ended",
        "task.next_base + batch.kept",
        "task.next_base",
        DATABASE_PARTS,
    ),
    _lane(
        "E1: what is committed in parts is not committed once more",
        "if batch.deliveries == batch.kept:",
        "if not batch.deliveries:",
        DATABASE_PARTS,
    ),
    _worker(
        "E1: at a stop the tasks are not given up before Kafka follows parts",
        "            self._let_parts_end()\n",
        "",
        DATABASE_PARTS,
    ),
    _worker(
        "E1: at a stop Kafka follows parts",
        "            if lane.in_parts and (event := lane.finish()) is not None:\n",
        "            if not lane.target and (event := lane.finish()) is not None:\n",
        DATABASE_PARTS,
    ),
    _worker(
        "E1: at a stop Kafka follows the last part",
        "if event is not None and lane.target is not None:",
        "if event is not None and lane.target is None:",
        DATABASE_PARTS,
    ),
    Mutant(
        "E1: only batches without messages have parts",
        "cues_kafka/runtime/task/parts.py",
        " or len(batch.records)",
        "",
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: Kafka follows a few parts",
        "cues_kafka/runtime/task/parts.py",
        "batch.parts + 1 < MOST",
        "batch.parts < MOST",
        (DATABASE_PARTS,),
    ),
    Mutant(
        "E1: Kafka follows parts soon",
        "cues_kafka/runtime/task/parts.py",
        "now_s - batch.began_s < WITHIN_S",
        "now_s >= batch.began_s",
        (DATABASE_PARTS,),
    ),
    _sink(
        "E1: a former owner does not claim the row",
        "own_statements",
        "WHERE {_OF_TASK} AND owner <= ?",
        "WHERE {_OF_TASK} AND ? > 0",
    ),
    _sink(
        "E1: the row is read under its lock",
        "sql",
        'f"{on.select}{dialect.lock}", self._task)',
        "on.select, self._task)",
    ),
    _sink(
        "E1: an outbox that another process may have filled is emptied",
        "sql",
        "        self._outbox_filled = True  # another process may have had the task since\n",
        "",
        f"{TARGETS}::test_outbox_of_another_process_is_not_published_twice",
    ),
    _sink(
        "E1: SQLite takes its lock before it reads the row",
        "sqlite",
        '"BEGIN IMMEDIATE"',
        '"BEGIN"',
    ),
    _sink(
        "E1: the outbox is in the transaction of the row (SQLite)",
        "sqlite",
        "        if last.rows:\n            connection.executemany(last.fill, last.rows)\n"
        "        if connection.execute(*last.moved).fetchone() is None:\n            raise NotMoved\n"
        '        connection.end_results()\n        connection.execute("COMMIT")\n',
        '        connection.end_results()\n        connection.execute("COMMIT")\n'
        "        if last.rows:\n            connection.executemany(last.fill, last.rows)\n",
    ),
    _sink(
        "E1: a row or an outbox that something else changed is not committed (SQLite)",
        "sqlite",
        "        if connection.execute(*last.moved).fetchone() is None:\n            raise NotMoved\n",
        "",
        "tests/integration/test_inside.py",
    ),
    _sink(
        "E1: a statement behind the end of the transaction is refused (SQLite)",
        "sqlite",
        "        if not self.connection.in_transaction:\n",
        "        if not self.connection:\n",
    ),
    _sink(
        "E1: the outbox is in the transaction of the row (PostgreSQL)",
        "postgres",
        "                for row in last.rows:\n                    self.execute(connection, last.fill, row)\n",
        '                connection.execute("COMMIT")\n                connection.execute("BEGIN")\n'
        "                for row in last.rows:\n                    self.execute(connection, last.fill, row)\n",
    ),
    _sink(
        "E1: a serialization failure is no fault of a step (PostgreSQL)",
        "postgres",
        '    "40001": "serialization failure",\n',
        "",
    ),
    _sink(
        "E1: what a step has caused is no outage (PostgreSQL)",
        "postgres",
        '                return f"{why} ({self._brief(error)})"\n        return ""\n',
        '                return f"{why} ({self._brief(error)})"\n        return code\n',
    ),
    _sink(
        "E1: the outbox is in the transaction of the row (MySQL)",
        "mysql",
        "        for row in last.rows:  # the server limits the size of one statement\n",
        "        self.commit(connection)\n        for row in last.rows:\n",
    ),
    _sink(
        "E1: a deadlock is no fault of a step (MySQL)",
        "mysql",
        "    1213: DEADLOCK,\n",
        "",
    ),
    _calling(
        "E1: a list with an exception in its result is called one by one",
        "            if failure.batch.tentative:\n                raise FailedTogether from error\n",
        "",
        f"{TARGETS}::test_an_exception_in_the_result_of_a_list_takes_back_the_rows_of_its_message_alone",
    ),
    Mutant(
        "E1: the row has the place in the replay topic",
        "cues_kafka/records/held.py",
        '        "replays": _texts(row.replays),\n',
        "",
        (f"{REPLAYS}::test_replay_writes_its_row_once",),
    ),
    # Calls.
    _sink(
        "E4: an answer is kept before the function gets it",
        "calls",
        '            calls.record(delivery, call, entry, f"the answer to {what}")\n',
        "            calls.check_owner()\n",
        CALLS,
    ),
    _sink(
        "E4: a result is kept before the function gets it",
        "calls",
        '    calls.record(delivery, call, Answered("", {}, body), f"the result of {what}")\n',
        "",
        CALLS_ALONE,
    ),
    _sink(
        "E4: an answer that is not kept voids the batch, whatever the function makes of it",
        "calls",
        "            delivery.outage = error\n",
        "",
        CALLS_ALONE,
    ),
    _sink(
        "E4: another request has no kept answer",
        "calls",
        "            if entry.digest != digest:\n",
        "            if not digest:\n",
        CALLS_ALONE,
    ),
    _sink(
        "E4: a replay has keys of its own",
        "calls",
        'f"{delivery.hash()}.{delivery.replay}-{number}"',
        'f"{delivery.hash()}.0-{number}"',
        f"{REPLAYS}::test_replay_calls_a_server_under_keys_of_its_own",
    ),
    _sink(
        "E4: entries of a step are deleted with its outcome",
        "calls",
        "        return self._deleting(journal.keys_of(step)), journal.size_of(step)\n",
        "        return [], journal.size_of(step)\n",
        CALLS_ALONE,
    ),
    _sink(
        "E4: an answer that the function refused is asked for again",
        "journal",
        "            self._refused.add((step, call))\n",
        "            self._refused.discard((step, call))\n",
        CALLS_ALONE,
    ),
    Mutant(
        "E4: a recovery reads the journal up to a record of its own",
        "cues_kafka/runtime/task/recalling.py",
        "        end = calls.mark_end() + 1\n        place = TopicPartition(journal.topic, journal.partition)\n",
        "        place = TopicPartition(journal.topic, journal.partition)\n"
        "        end = broker.watermarks([place])[place].high\n",
        (CALLS_ALONE,),
    ),
    Mutant(
        "E4: late answers of committed steps are deleted",
        "cues_kafka/runtime/task/recalling.py",
        "        journal.sort_out(positions)\n",
        "",
        (CALLS_ALONE,),
    ),
    # Feeds.
    _feed(
        "G1: the record has the place behind its last row",
        "batch.totals, batch.halt, batch.place)",
        'batch.totals, batch.halt, "")',
    ),
    _feed(
        "G1: a restart reads on behind the newest committed record",
        "SourcePlace(positions, record.place or None if record else None)",
        "SourcePlace(positions, None if record else None)",
    ),
    _feed(
        "G1: a place is that of a row that is in the batch",
        "            if not into.add(message, at, batch):\n                return False\n            place.at = at\n",
        "            place.at = at\n            if not into.add(message, at, batch):\n                return False\n",
    ),
    _feed(
        "G1: a source drops only what is committed",
        "            tells(self.spec.partition, record.place)\n",
        "            tells(self.spec.partition, place.at or record.place)\n",
    ),
    Mutant(
        "G1: a table that was restored from a backup is not read on",
        "cues_kafka/bridges/outbox/sqlite.py",
        "        if newest < _number(place):\n",
        "        if newest < 0:\n",
        (RESTORED,),
    ),
    Mutant(
        "G1: the newest delivered row is still the same",
        "cues_kafka/bridges/outbox/reader.py",
        "(row is not None and self.fits(mark, self.mark(row)))",
        "row is not None",
        (RESTORED,),
    ),
)
