"""Direct slots and staged parts of Spark."""

from __future__ import annotations

from tests.mutants.edits import Never, Replace, Without
from tests.mutants.mutant import Mutant
from tests.mutants.rules.suites import SLOT

SLOT_INPUTS = "tests/unit/on_spark/direct/test_slot_inputs.py"
PARTS = "tests/unit/operate/move/test_staged.py"
STAGING = "tests/unit/on_spark/staged/test_files.py"
BATCH_FILES = "tests/unit/on_spark/staged/test_batch_files.py"

MUTANTS: tuple[Mutant, ...] = (
    # Direct slots of Spark.
    Mutant(
        "D2: an end of the log below the range's end is no end",
        "_add",
        Replace("$eof is not None and $eof >= $bound", "$eof is not None"),
        (SLOT,),
    ),
    Mutant(
        "D2: nothing at or past the end is delivered",
        "_add",
        Replace(
            """
            if $last >= $bound:
                $messages = [$one for $one in $messages if $before]
            """,
            """
            if False:
                $messages = [$one for $one in $messages if $before]
            """,
        ),
        (SLOT,),
    ),
    Mutant(
        "a slot is not held up by an input that has nothing below its end",
        "_has_enough",
        Never("$topic not in self._over and $offset >= self._bounds[$topic]"),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "a slot pauses an input of a join that is a batch ahead",
        "_balance",
        Replace("$held - self._paused", "set[TopicPartition]()"),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "a slot goes on with an input that it has paused",
        "_balance",
        Replace("self._paused - $held", "set[TopicPartition]()"),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "a slot reads the input that a recorded choice names next",
        "_has_enough",
        Never("self._turn($buffer, $task)"),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D2: a slot reads beyond the end what a snapshot announced",
        "_point",
        Replace(
            "$bounds[$one.topic] = max($one.offset, $bounds.get($one.topic, 0))",
            "$bounds[$one.topic] = $bounds.get($one.topic, 0)",
        ),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D2: a slot reads beyond the end what a recorded choice may name",
        "_point",
        Replace("max($facts[$binding].stable, $bounds.get($topic, 0))", "$bounds.get($topic, 0)"),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D2: a batch that was planned for other inputs delivers nothing of those that it misses",
        "deliver",
        Replace("{$one.topic: $ends.get($one.topic, 0) for $one in self._spec.inputs}", "$ends"),
        ("tests/unit/on_spark/direct/test_changed_inputs.py",),
    ),
    Mutant(
        "D5: a range that a migration took away is not waited for",
        "watch",
        Replace("$moved := _moved($task)", "($moved := _moved($task)) and not $moved"),
        ("tests/unit/on_spark/direct/test_changed_inputs.py",),
    ),
    Mutant(
        "D5: a request that another driver has announced is left to it",
        "_free",
        Replace("$theirs is None", "$theirs or $theirs is None"),
        ("tests/unit/on_spark/direct/test_replay_slot.py",),
    ),
    Mutant(
        "Q1: a replay that was fenced did not die",
        "replay",
        Replace(
            "self._shows_fenced($partition) and ($left := self.leave($partition)).kind",
            "self._shows_fenced($partition) and $partition < 0 and ($left := self.leave($partition)).kind",
        ),
        ("tests/unit/on_spark/direct/test_replay_slot.py",),
    ),
    Mutant(
        "D3: a join is delivered when one input has nothing left",
        "is_delivered",
        Replace(
            "any($through) if $spec.pairing == 'join' else bool($through) and all($through)",
            "all($through) if $spec.pairing else bool($through) and all($through)",
        ),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D3: alts are delivered when no input has anything left",
        "is_delivered",
        Replace("$spec.pairing == 'join'", "$spec.pairing != 'single'"),
        (SLOT_INPUTS,),
    ),
    Mutant(
        "D1: a join goes back to its records only where each input is behind",
        "_due",
        Replace("due(self._given.pairing, $inputs, $places.intersection($inputs))", "$places.intersection($inputs)"),
        ("tests/spark/test_ranges.py",),
    ),
    Mutant(
        "D5: the record must show this range delivered",
        "watch",
        Replace("is_delivered($spec, $task.positions, $ends)", "$task.record"),
        (SLOT,),
    ),
    Mutant(
        "D6: what native workers run is left alone",
        "deliver",
        Replace("self._ask_for_members()", "None"),
        (SLOT,),
    ),
    Mutant(
        "J8: a slot asks for members behind its init",
        "_at",
        Replace("self._ask_for_members()", "None"),
        (SLOT,),
    ),
    Mutant(
        "a batch of a slot is bounded by bytes",
        "_has_enough",
        Without("$held >= self._policy.max_bytes"),
        (SLOT,),
    ),
    # Staged parts of Spark.
    Mutant(
        "T3: a part is published as it was announced, to the byte",
        "take",
        Never("checksum($payload).hex() != $expected[$count].checksum"),
        (PARTS, STAGING),
    ),
    Mutant(
        "T3: a part is published whole",
        "take",
        Never("$count < len($expected)"),
        (PARTS, STAGING),
    ),
    Mutant(
        "D5: a fenced part succeeds when its record shows it published",
        "_watch",
        Never("is_published($role, $record)"),
        (PARTS, "tests/unit/on_spark/staged/test_part_slot.py"),
    ),
    Mutant(
        "a batch goes to the topics that it was announced for",
        "announced",
        Replace(
            """
            if $gone:
                $now = $topics
                raise RecoveryError($text)
            """,
            """
            if False:
                $now = $topics
                raise RecoveryError($text)
            """,
        ),
        (PARTS, STAGING),
    ),
    Mutant(
        "T4: a newer batch is never deleted",
        "clean",
        Replace("int($older) < $batch", "int($older) != $batch"),
        (STAGING,),
    ),
    Mutant(
        "an announced file that is gone is named before Spark reads it",
        "check",
        Never("$found.get($name) != $length"),
        (STAGING,),
    ),
    Mutant(
        "a manifest that was altered is refused",
        "read",
        Never("checksum($data) != $expected"),
        (STAGING,),
    ),
    # Tools.
    Mutant(
        "E5: the entry is put before the parts",
        "_publish_once",
        Replace(
            """
            self._commit($announced, $manifest, staged_here=$staged_here)
            return $manifest, self._publish($staging, $announced, $manifest)
            """,
            """
            outcomes = self._publish($staging, $announced, $manifest)
            self._commit($announced, $manifest, staged_here=$staged_here)
            return $manifest, outcomes
            """,
        ),
        (BATCH_FILES,),
    ),
    Mutant(
        "E5: files of an announced batch are there before its entry",
        "FileCommits.commit",
        Replace("not $staged_here and ($missing := self._files.missing($batch))", "$missing := [][:1]"),
        (BATCH_FILES,),
    ),
    Mutant(
        "E5: each run of a Spark task has names of its own",
        "FileWriter.__init__",
        Replace("f'{$prefix}-{secrets.token_hex(8)}'", "$prefix"),
        (BATCH_FILES,),
    ),
    Mutant(
        "E5: the rows of files are counted once",
        "publish",
        Replace("0 if $part else self.in_files", "0"),
        (BATCH_FILES,),
    ),
)
