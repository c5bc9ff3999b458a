"""The page of proof results is made of the parts beside it, and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.proof import results

PROOF = Path(__file__).parents[2] / "docs/proof"


def test_the_page_says_what_the_parts_say() -> None:
    """A figure that was changed by hand, or a part that was run again without the page, fails here."""
    assert (PROOF / results.PAGE).read_text(encoding="utf-8") == results.page(PROOF)


def test_the_readme_counts_the_states_that_were_explored() -> None:
    """In millions."""
    states = sum(json.loads(part.read_text(encoding="utf-8"))["states"] for part in PROOF.glob("model-*.json"))
    readme = (PROOF.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f" {states // 1_000_000} million states" in readme


def test_parts_of_different_code_are_refused(tmp_path: Path) -> None:
    """A table of both would speak of no code at all."""
    part = json.loads((PROOF / "model-alone-1.json").read_text(encoding="utf-8"))
    for number, digest in enumerate(("a", "b")):
        (tmp_path / f"model-{number}.json").write_text(json.dumps({**part, "digest": digest}), encoding="utf-8")
    with pytest.raises(ValueError, match="parts from different code"):
        results.page(tmp_path)


def test_a_folder_without_parts_says_so(tmp_path: Path) -> None:
    """The command is run before any proof too."""
    assert results.main([str(tmp_path)]) == 0
    assert "No part of `make proof-model`" in (tmp_path / results.PAGE).read_text(encoding="utf-8")
