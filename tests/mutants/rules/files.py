"""Targets and batches of files."""

from __future__ import annotations

from tests.mutants.edits import Delete, Replace, Without
from tests.mutants.mutant import Mutant

BLOBS = "tests/unit/sinks/test_blob_crashes.py"
LOSSES = "tests/unit/sinks/test_blob_losses.py"
BATCHES = "tests/unit/sinks/test_blob_batches.py"

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
)
