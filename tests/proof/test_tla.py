"""The TLA+ module of the worker protocol: TLC runs on small bounds, and its runner tells a verdict from a failure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cues_kafka.brokers.local import java
from tests.proof import tla
from tests.proof.tla import ACTIONS, ALL, COVERED, INVARIANTS, MODULE, MUTANTS, PROTOCOL, RESULT, Check, Found

CHECKS = (*PROTOCOL, *MUTANTS, *COVERED)
HELD = Found("", 20, 10, 5, 0, 1.0, "Version 2", "")


def test_the_protocol_holds_with_one_message_and_one_fault() -> None:
    """All states, two seconds; the bounds of `make proof-model` are wider."""
    found = tla.run(Check((*INVARIANTS, *ACTIONS), messages=1, faults=1))

    assert not found.violated, found.output
    assert found.distinct > 500
    assert found.depth > 30
    left = [file for name in ("states", "check.cfg", "*TTrace*", "*.old") for file in MODULE.parent.glob(name)]
    assert not left


def test_a_commit_that_is_asked_for_twice_tears_the_next_transaction() -> None:
    """P8, KAFKA-17754: the late request finds the offsets of the next transaction, and nothing else in it."""
    mutant = next(check for check in MUTANTS if check.without == ("discard when in doubt",))
    found = tla.run(mutant)

    assert found.violated == "I2"
    assert len(found.path) == found.steps - 1  # the first state has no action
    assert [line.split()[1] for line in found.path[-6:]] == [
        "P7Commit", "P8Doubt", "Markers", "P6Record", "LateEndTxn", "Markers",
    ]  # fmt: skip


def test_the_committed_result_is_about_the_committed_module() -> None:
    """And about every check of the runner. Else: `make proof-model`."""
    text = (MODULE.parent / RESULT).read_text(encoding="utf-8")

    assert tla.digest() in text
    for check in (*MUTANTS, *COVERED):
        assert f"| {check.name} | {check.messages} | {check.faults} |" in text
    for check in PROTOCOL:
        assert f"| {', '.join(check.properties)} | {check.messages} | {check.faults} |" in text


def test_every_rule_of_the_module_is_switched_off_and_every_property_refuted() -> None:
    """A rule that the module does not know would switch nothing off; a property that nothing violates says little."""
    rules = set(re.findall(r'Rule\("([^"]+)"\)', MODULE.read_text(encoding="utf-8")))

    assert {rule for check in MUTANTS for rule in check.without} == rules
    assert {check.properties[0] for check in MUTANTS} == set(ALL)
    assert {name for check in PROTOCOL for name in check.properties} == set(ALL)


def test_the_module_is_two_pages() -> None:
    """What cannot be read in one sitting convinces no reader."""
    lines = [line for line in MODULE.read_text(encoding="utf-8").splitlines() if line.strip()]

    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120


def test_the_committed_configuration_is_the_first_check() -> None:
    """A reader who runs TLC by hand gets the same states."""
    text = MODULE.with_suffix(".cfg").read_text(encoding="utf-8")

    assert PROTOCOL[0].configuration(text) == text
    with pytest.raises(ValueError, match="must have one line"):
        PROTOCOL[0].configuration(text.replace("Faults", "Errors"))


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("Error: Parsing or semantic analysis failed.", 150),
        ("9 states generated, 8 distinct states found, 3 states left on queue.", 0),
        ("9 states generated, 8 distinct states found, 0 states left on queue.", 255),
        ("Invariant I1 is violated.\n9 states generated, 8 distinct states found, 3 states left on queue.", 0),
    ],
)
def test_an_end_without_a_verdict_is_an_error(output: str, code: int) -> None:
    """A search that was cut short has shown nothing."""
    with pytest.raises(RuntimeError, match=f"exit code {code} and no verdict"):
        tla.read(output, code)


@pytest.mark.parametrize(("check", "violated"), [(PROTOCOL[0], "I1"), (MUTANTS[0], ""), (MUTANTS[0], "I4")])
def test_a_surprise_fails_and_writes_nothing(
    check: Check, violated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The protocol is violated; a rule is switched off and nothing happens, or something else does."""
    found = {each: replace(HELD, violated="" if each.holds else each.properties[0]) for each in CHECKS}
    found[check] = replace(HELD, violated=violated)
    monkeypatch.setattr(tla, "run", lambda each, _module: found[each])

    assert tla.main(["--write", str(tmp_path)]) == 1
    assert f"not as it must be: {check.name}" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())

    del found[check]
    found[check] = replace(HELD, violated="" if check.holds else check.properties[0])
    assert tla.main(["--write", str(tmp_path)]) == 0
    assert [tmp_path / RESULT] == list(tmp_path.iterdir())


def test_a_machine_without_java_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same remedies as for the local broker, but for the broker."""
    monkeypatch.setattr(java, "package_file", lambda package, path: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    assert tla.main(["--only", "fencing"]) == 2
    told = capsys.readouterr().err
    assert "TLC needs Java" in told
    assert "Install a Java runtime" in told
    assert "broker" not in told


def test_a_machine_without_tlc_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither cache nor Maven nor pyspark."""
    from cues_kafka.brokers.local import jars

    monkeypatch.setattr(jars, "package_file", lambda package, path: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tla, "find_java", lambda **_: java.Java(Path("/nowhere/bin/java"), "none", 17, "test"))
    monkeypatch.setenv("CUES_KAFKA_CACHE", str(tmp_path))

    assert tla.main(["--only", "fencing"]) == 2
    told = capsys.readouterr().err
    assert "TLC" in told
    assert "install Maven" in told
    assert "CUES_KAFKA_BOOTSTRAP" not in told


def test_a_name_that_is_no_check_is_answered_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Names are sentences, no reader knows them by heart."""
    assert tla.main(["--only", "nothing"]) == 2
    assert "discard when in doubt" in capsys.readouterr().err
