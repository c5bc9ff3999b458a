"""What others wrote into values, keys, headers, errors, states and pauses reaches no terminal as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer import Exit
from typer.testing import CliRunner

from cues_kafka import ConfigError, Graph, Json, Memory, Processor, Source, State, Store, Topic, connect, start
from cues_kafka.brokers import open as open_module
from cues_kafka.brokers.open import open_broker
from cues_kafka.cli import loading
from cues_kafka.cli.main import app
from cues_kafka.cli.options import print_error, say_first
from cues_kafka.cli.tail import printer
from cues_kafka.operate.look import status as status_module
from cues_kafka.operate.repair import ask as repairing
from cues_kafka.records.control import Hold, encode, key_of_hold
from cues_kafka.records.status import StatusRecord, TaskOwner, encode_status
from cues_kafka.task.calling.failures import ended_by, show, text_of

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\nshop: all is well\r\x9b1A\u202etxt\u2066\u200b\U000e0041"
UNSAFE = {*HOSTILE} - {*"\n]0;pwned[2Jshop: all is wellAtx1"}


def fail(value: Any, *, seen: State[int]) -> Any:
    """Fails with what the message says, for what has no number."""
    if "n" not in value:
        raise ValueError(value["text"])
    seen[value["text"]] = value["n"]
    return value


PART = Processor(fail, name="p", inputs="in", outputs="out", state={"seen": Store(Json(int))})
GRAPH = Graph("g", Source("in"), PART, errors="g.errors", defaults=Topic(value=Json(), partitions=1))


@pytest.fixture(scope="module")
def cluster() -> Memory:
    """A graph with two messages, an error message, a pause and a state, each with what a terminal obeys."""
    made = Memory(status_every_s=60.0, control=True)
    broker = open_broker(made)
    with start(GRAPH, made) as running:
        sender = broker.sender("stranger")
        for value in ({"text": HOSTILE}, {"text": HOSTILE, "n": 1}):
            sender.send([("in", 0, HOSTILE.encode(), json.dumps(value).encode(), [(HOSTILE, HOSTILE.encode())], 0)])
        running.wait_idle(timeout_s=20.0)
    state = StatusRecord(
        task="p/0", state="stopped", owner=TaskOwner(instance=HOSTILE), every_s=600.0, stopped=HOSTILE, remedy=HOSTILE
    )
    sender.send([("g.status", 0, b"p/0", encode_status(state), None, 0)])
    sender.send([("g.control", 0, key_of_hold("p"), encode(Hold(by=HOSTILE, token="t", processor="p")), None, 0)])
    sender.close()
    return made


@pytest.fixture
def patched(cluster: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands work on the graph in memory."""
    broker = open_broker(cluster)
    monkeypatch.setattr(loading, "load_graph", lambda _: GRAPH)
    for module in (open_module, status_module, repairing):
        monkeypatch.setattr(module, "open_broker", lambda _: broker)
    monkeypatch.setattr(broker, "close", lambda: None)


COMMANDS: dict[str, str] = {
    "errors list g:g": "",
    "errors list g:g --json": "pwned",
    "errors show g:g g.errors/0@0": "\\u001b]0;pwned",
    "errors show g:g g.errors/0@0 --json": "pwned",
    "errors replay g:g --dry-run": "",
    "status g:g": "\\u001b]0;pwned",
    "status g:g --json": "pwned",
    "doctor g:g --for 0.1": "pwned",
    "lineage out/0@0": "in/0",
    "lineage out/0@0 --changes --graph g:g": "pwned",
    "lineage g.errors/0@0": "in/0",
    "plan g:g --records": "pwned",
    "verify g:g": "",
    "verify --state g:g": "",
    "cuts g:g": "",
    "pause g:g p --timeout 0.1": "already paused by \\u001b]0;pwned",
    "resume g:g": "it was paused by \\u001b]0;pwned",
    "delete g:g": "",
}
"""Commands, and what they print of the hostile text."""


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("command", COMMANDS)
def test_command_prints_escapes_for_texts_of_others(command: str) -> None:
    """No character that a terminal obeys, and no line that a stranger made."""
    done = CliRunner().invoke(app, command.split(), env={"COLUMNS": "400", "CUES_KAFKA_BOOTSTRAP": "localhost:1"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert not {*done.output} & UNSAFE, done.output
    assert not [line for line in done.output.splitlines() if line.startswith("shop: all is well")]
    assert COMMANDS[command] in done.output


@pytest.mark.parametrize("form", ["value", "full", "json"])
def test_tail_prints_escapes_on_a_terminal(cluster: Memory, form: Any) -> None:
    """In each form, also keys and headers."""
    with connect(cluster) as client:
        for topic in ("in", "out"):
            for message in client.messages(topic):
                line = printer(form, terminal=True)(message)
                assert not {*line} & (UNSAFE | {"\n"}), line


def test_worker_that_ends_by_an_exception_of_user_code_says_so_on_one_line() -> None:
    """Its text quotes the message; it is printed, logged and in `status`, and an error message keeps it as it was."""
    for said in (show(ValueError(HOSTILE)), ended_by(ValueError(HOSTILE))):
        assert said.startswith("ValueError: \\u001b]0;pwned\\u0007\\u001b[2J\\nshop: all is well\\r")
        assert not {*said} & (UNSAFE | {"\n"})
    assert text_of(ValueError(HOSTILE)) == HOSTILE


def test_error_has_no_line_that_a_stranger_made(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of ours may have several lines, and quote what a registry, a store of files or a database answers."""
    print_error(ConfigError(f"the registry refuses the schema: {HOSTILE}"))
    with pytest.raises(Exit):
        say_first([f"moves {HOSTILE}", "second"], yes=False)

    said = capsys.readouterr()
    lines = [*said.err.splitlines(), *said.out.splitlines()]
    assert len(lines) == 6
    assert [line[:4] for line in lines if "all is well" in line] == ["  sh", "  sh"]
    assert not {*said.err, *said.out} & (UNSAFE - {"\n"})
