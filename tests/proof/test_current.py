"""A recorded result counts only for the code that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.proof import current, subjects

PROOF = Path(__file__).parents[2] / "docs/proof"


def written(folder: Path, name: str, **changes: object) -> None:
    """A recorded part with some values changed."""
    part = json.loads((PROOF / name).read_text(encoding="utf-8"))
    (folder / name).write_text(json.dumps(part | changes), encoding="utf-8")


def test_worlds_of_another_core_or_another_shell_are_out_of_date(tmp_path: Path) -> None:
    """Each world is counted by itself, because only some run code of the shell."""
    core, shell = subjects.core(), subjects.shell()
    written(tmp_path, "model-alone-1.json", digest=core)
    written(tmp_path, "model-alone-2.json", digest="of before")
    written(tmp_path, "model-handler-1.json", digest=core, shell=shell)
    written(tmp_path, "model-handler-2.json", digest=core, shell="of before")

    found = current.model(tmp_path)

    assert (found.current, found.recorded) == (2, 4)
    assert found.wanted == len(list(PROOF.glob("model-*.json")))
    assert found.line().endswith("missing: is out of date: run `make proof-model` again")


def test_parts_of_another_simulation_are_out_of_date(tmp_path: Path) -> None:
    """Both digests must be today's: of what ran, and of what ran it."""
    today = {"code": subjects.simulated(), "checker": subjects.simulation()}
    written(tmp_path, "simulation-00.json", **today)
    written(tmp_path, "simulation-01.json", **today | {"code": "of before"})
    written(tmp_path, "simulation-02.json", **today | {"checker": "of before"})

    found = current.simulation(tmp_path)

    assert (found.current, found.recorded, found.wanted) == (1, 3, 22)


def test_a_complete_proof_of_todays_code_says_so(tmp_path: Path) -> None:
    """And names no command."""
    parts = sorted(file.name for file in PROOF.glob("faults-*.json"))
    for name in parts:
        written(tmp_path, name, code=subjects.faults())

    found = current.faults(tmp_path)

    assert (found.current, found.wanted) == (len(parts), len(parts))
    assert found.line().endswith("parts: is about today's code")


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--strict"], 1)])
def test_old_results_fail_only_where_that_is_asked_for(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make check` shows the table. A proof takes hours, so a change cannot wait for it."""
    monkeypatch.setattr(current, "PROOFS", (current.tla_module, current.staged))

    assert current.main([str(tmp_path), *arguments]) == code
    assert "make proof-spark           0 of 10 parts, 10 missing" in capsys.readouterr().out
