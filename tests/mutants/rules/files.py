"""Targets and batches of files."""

from __future__ import annotations

from tests.mutants.edits import Delete, Replace, Without
from tests.mutants.mutant import Mutant

BLOBS = "tests/unit/sinks/test_blob_crashes.py"
LOSSES = "tests/unit/sinks/test_blob_losses.py"
BATCHES = "tests/unit/sinks/test_blob_batches.py"
COMMITS = "tests/unit/sinks/delta/test_commits.py"
DELTA = "tests/unit/on_spark/staged/test_delta_batches.py"

MUTANTS: tuple[Mutant, ...] = (
    # What strangers and former owners may not do.
    Mutant(
        "E3: nothing of a tool's entry is swept",
        "left_by",
        Without("$entry.kind == SETTLED"),
        (BLOBS,),
    ),
    Mutant(
        "E3: a former owner claims nothing above a later one",
        "ask",
        Replace("$entry.step != $step or $entry.owner > $owner", "$entry.step != $step"),
        (BLOBS,),
    ),
    # Tools.
    Mutant(
        "E3: an entry is put only where there is none",
        "create",
        Replace("os.link($aside, $goal)", "$aside.replace($goal)"),
        (BLOBS,),
    ),
    Mutant(
        "E3: a recovery puts a claim",
        "ask",
        Replace("self._asked(self.log.append, $number, $claim)", "$number >= 0"),
        (BLOBS,),
    ),
    Mutant(
        "E3: a sweep leaves what is committed",
        "_sweep",
        Replace("not ($sweep.keep and $path.startswith(f'{$sweep.keep}/'))", "$path"),
        (BLOBS,),
    ),
    Mutant(
        "E3: the entry is put when all uploads have ended",
        "_prepare",
        Replace("$one.upload.result", "$one.upload.done"),
        (BLOBS,),
    ),
    Mutant(
        "E3: an entry needs the one before it",
        "append",
        Replace("self.place($former) if $number else ''", "''"),
        (LOSSES,),
    ),
    Mutant(
        "E3: readers stop at a lost entry",
        "after",
        Replace("$number <= $top[0]", "$number < 0"),
        (LOSSES,),
    ),
    Mutant(
        "E3: a task stops at a lost entry",
        "newest",
        Delete("""
            if $found.gap is not None:
                raise $found.gap
            """),
        (LOSSES,),
    ),
    Mutant(
        "E3: what is given up behind a gap does not count",
        "settle",
        Replace("(*$top.voids, ($found.gap.number, $number)) if $found.gap else $top.voids", "$top.voids"),
        (LOSSES,),
    ),
    Mutant(
        "E3: the marker is looked at before each batch and each commit",
        "_check_there",
        Replace("self._asked(self._known.glance, self.store)", "self.store"),
        (LOSSES,),
    ),
    Mutant(
        "E3: only the first start makes the store",
        "make_stores",
        Replace("$created is None or set(checks.backing_topics($graph, $store)) <= set($created)", "True"),
        (LOSSES,),
    ),
    Mutant(
        "E3: the directory of a store is not made again",
        "_make_directory",
        Replace("$path == $root", "$path == $path.parent"),
        (LOSSES,),
    ),
    Mutant(
        "E5: an older driver puts no entry",
        "BatchLog._append",
        Replace("$tail[1].step >= $batch.number", "$tail[1].step == $batch.number"),
        (BATCHES,),
    ),
    Mutant(
        "E5: one attempt has a publication number",
        "BatchLog._refuse_other",
        Replace("$found.attempt != $attempt", "not $found"),
        (BATCHES,),
    ),
    Mutant(
        "E5: a driver compares the store with Kafka before its first batch",
        "BatchLog._mismatch",
        Replace("$kafka and $kafka.published and not $kafka.reset and $top < $number", "not $number"),
        (BATCHES,),
    ),
    Mutant(
        "E5: a claim stands for a reset",
        "BatchLog.compare",
        Replace("$kafka and $kafka.reset and $kafka.number > self.top", "not self"),
        (BATCHES,),
    ),
    Mutant(
        "E5: what is committed is not cleaned up",
        "BatchLog._delete",
        Without("$path not in $kept"),
        (BATCHES,),
    ),
    Mutant(
        "E6: an older driver commits no batch to a table",
        "BatchCommits.commit",
        Replace("self.top >= $batch.number", "self.top == $batch.number"),
        (DELTA,),
    ),
    Mutant(
        "E6: one attempt has a publication number in a table",
        "BatchCommits._refuse_other",
        Replace("self._mark != $mark", "not self"),
        (DELTA,),
    ),
    Mutant(
        "E6: a driver that another one was quicker than compares again",
        "BatchCommits.commit",
        Replace("(TargetMoved, TableChanged)", "TableChanged"),
        (DELTA,),
    ),
    Mutant(
        "E6: a driver reads the number in the version that it commits over",
        "BatchCommits._look",
        Replace("-1 if $found is None else $found", "-1"),
        (DELTA,),
    ),
    Mutant(
        "E6: a batch and its number are one commit of the table",
        "BatchCommits.commit",
        Replace("{self._processor: $batch.number, self._marks: $mark}", "{self._marks: $mark}"),
        (DELTA,),
    ),
    Mutant(
        "E6: a driver compares the table with Kafka before its first batch",
        "BatchCommits._mismatch",
        Replace("$kafka and $kafka.published and not $kafka.reset and self.top < $number", "not $number"),
        (DELTA,),
    ),
    Mutant(
        "E6: a table keeps the number of a reset",
        "BatchCommits.compare",
        Replace("$kafka and $kafka.reset and $kafka.number > self.top", "not self"),
        (DELTA,),
    ),
    Mutant(
        "E6: a table is made only where Kafka has no record",
        "BatchCommits.compare",
        Replace("$kafka is None", "True"),
        (DELTA,),
    ),
    Mutant(
        "E6: commits that a table has lost are told",
        "BatchCommits._refuse_loss",
        Replace("self.top < $batch.known", "not self"),
        (DELTA,),
    ),
    Mutant(
        "E6: files of an announced batch are there before its commit",
        "BatchCommits._refuse_loss",
        Replace("$look and ($missing := self._table.missing($batch.files))", "$missing := [][:1]"),
        (DELTA,),
    ),
    Mutant(
        "E6: a task commits to a table over the bytes that it knows",
        "DeltaTransactions._compare",
        Replace("self._known[1] != (None if $over is None else mark_of($over))", "not self"),
        (COMMITS,),
    ),
    Mutant(
        "E6: the bytes of a task and its rows are one commit of the table",
        "DeltaTransactions._commit",
        Replace(
            "{self._app: Kept.read($kept).held.step, self._marks: $mark}", "{self._app: Kept.read($kept).held.step}"
        ),
        (COMMITS,),
    ),
    Mutant(
        "E6: a task that another one was quicker than is told",
        "append",
        Replace("'Concurrent transaction' in str($error)", "not self"),
        (COMMITS,),
    ),
    Mutant(
        "E6: bytes beside a table that were changed are not believed",
        "DeltaTransactions.ask",
        Replace("mark_of($data) != $mark", "not self"),
        (COMMITS,),
    ),
)
