"""``cues-kafka plan`` refuses what ``run`` refuses, in the same words."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cues_kafka import ConfigError, Memory, start
from cues_kafka.brokers.memory import MemoryBroker
from cues_kafka.cli.loading import load_graph
from cues_kafka.cli.main import app
from cues_kafka.plan.inspectors import Terms
from cues_kafka.task.making.prepare import plan_start, prepare
from cues_kafka.testing.tester import Tester

HEAD = """
from cues_kafka import Avro, Graph, Json, Processor, Retry, Source, Topic

def same(value): return value
"""

REFUSED = {
    "strategy": 'Graph("g", Source("in"), Processor(same, name="p", inputs="in", outputs="out", '
    'strategy="at-most-once", retry=Retry()))',
}


def program(directory: Path, graph: str) -> str:
    """MODULE:GRAPH of a file with this graph."""
    path = directory / f"graph_{directory.name.replace('-', '_')}.py"
    path.write_text(f"{HEAD}\ng = {graph}\n")
    return f"{path}:g"


@pytest.mark.parametrize("graph", REFUSED.values(), ids=REFUSED)
def test_what_run_refuses_plan_refuses_in_the_same_words(tmp_path: Path, graph: str) -> None:
    """Nothing is created for it, and the remedy is one of the command line."""
    target = program(tmp_path, graph)
    memory = Memory()
    with pytest.raises(ConfigError) as refusal:
        start(load_graph(target), memory)
    result = CliRunner().invoke(app, ["plan", target, "--offline"])

    assert result.exit_code == 1
    assert f"Refused:\n  {refusal.value}\n" in result.stdout
    assert "leave retry= out" in str(refusal.value)
    from cues_kafka.brokers.open import open_broker

    assert open_broker(memory).partitions() == {}


def test_what_run_leaves_out_plan_lets_pass(tmp_path: Path) -> None:
    """With the option of the same name."""
    target = program(tmp_path, REFUSED["strategy"])

    assert CliRunner().invoke(app, ["plan", target, "--offline", "--except", "p"]).exit_code == 0
    assert CliRunner().invoke(app, ["plan", target, "--offline", "--except", "q"]).exit_code == 2


def test_a_wrong_graph_ends_with_the_code_that_run_has(tmp_path: Path) -> None:
    """2: nothing was planned."""
    result = CliRunner().invoke(app, ["plan", program(tmp_path, 'Graph("g", 7)'), "--offline"])

    assert (result.exit_code, result.stdout) == (2, "")


def test_declared_inputs_of_unequal_width_are_refused_without_a_cluster(tmp_path: Path) -> None:
    """What is declared is known offline too."""
    graph = (
        'Graph("g", Source("a"), Source("b"), '
        'Processor(lambda a, b: a, name="j", inputs={"a": "a", "b": "b"}, outputs="out"), '
        'topics={"a": Topic(partitions=2), "b": Topic(partitions=3)})'
    )
    result = CliRunner().invoke(app, ["plan", program(tmp_path, graph), "--offline"])

    assert result.exit_code == 1
    assert "different numbers of partitions (a: 2, b: 3)" in result.stdout


def test_the_program_says_its_version() -> None:
    """For reports of defects."""
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.stdout) == (0, f"cues-kafka {metadata.version('cues-kafka')}\n")


def test_permissions_are_printed_for_the_users_that_are_named(tmp_path: Path) -> None:
    """Who is not named is called as the role; a role that does not exist is a wrong setting."""
    command = ["plan", program(tmp_path, 'Graph("g", Source("a"))'), "--offline", "--acls", "--principal"]

    result = CliRunner().invoke(app, [*command, "sender=User:CN=till, O=shop"])
    assert "--allow-principal 'User:CN=till, O=shop' --operation Write --topic a" in result.stdout
    assert "--allow-principal User:verifier --operation" in result.stdout
    for wrong in ("till=User:till", "sender=till", "sender"):
        assert CliRunner().invoke(app, [*command, wrong]).exit_code == 2


def test_a_script_of_permissions_grants_nothing_to_a_user_that_is_not_named(tmp_path: Path) -> None:
    """The shell itself refuses a placeholder that is not set; with it set, `kafka-acls` gets the user as one word."""
    target = program(tmp_path, 'Graph("g", Source("a"))')
    command = ["plan", target, "--acls", "--format", "kafka-acls", "--principal", "verifier=User:CN=v, O=shop"]
    script = CliRunner().invoke(app, [*command, "--command-config", "my admin", "--bootstrap", "localhost:9092"]).stdout
    tool = tmp_path / "bin" / "kafka-acls"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>" "$word"; done; echo\n')
    tool.chmod(0o755)

    def pasted(lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{tool.parent}:/usr/bin:/bin", **variables}
        return subprocess.run(["sh", "-c", lines], env=environment, capture_output=True, text=True, check=False)

    refused = pasted(script)
    assert refused.returncode != 0
    assert "user of the deployer, such as User:deployer-1" in refused.stderr
    assert refused.stdout == ""
    done = pasted(script, DEPLOYER="User:d", SENDER="User:s")
    head = "<--bootstrap-server><localhost:9092><--command-config><my admin><--add><--allow-principal>"
    assert f"{head}<User:s><--operation><Write><--topic><a>" in done.stdout.splitlines()
    assert f"{head}<User:CN=v, O=shop><--operation><Describe><--group><g.tools>" in done.stdout.splitlines()
    assert "address of the cluster" in pasted(CliRunner().invoke(app, command).stdout).stderr


def test_permissions_are_data_too_and_those_of_a_named_client_are_asked_for(tmp_path: Path) -> None:
    """The graph does not know such clients."""
    target = program(tmp_path, 'Graph("g", Source("a"))')
    command = ["plan", target, "--acls", "--client", "billing"]

    found = json.loads(CliRunner().invoke(app, [*command, "--format", "json", "--principal", "client=User:b"]).stdout)

    assert {(acl["operation"], acl["pattern"], acl["name"]) for acl in found if acl["role"] == "client"} == {
        ("Write", "prefixed", "billing."),
        ("Read", "prefixed", "billing.tailer."),
        ("Describe", "literal", "billing.tailers.tools"),
        ("Describe", "literal", "g.tools"),
        *((operation, "literal", "billing.tailers") for operation in ("Create", "Read", "Write")),
        *((operation, "literal", "a") for operation in ("Read", "Write")),
    }
    assert {acl["principal"] for acl in found} == {"User:b", None}
    assert "ACLs of the client:" in CliRunner().invoke(app, [*command, "--offline"]).stdout


@pytest.mark.parametrize("options", [["--acls", "--format", "yaml"], ["--format", "json"], ["--client", "billing"]])
def test_options_of_permissions_that_say_nothing_are_wrong(tmp_path: Path, options: list[str]) -> None:
    """The message names what is there."""
    result = CliRunner().invoke(app, ["plan", program(tmp_path, 'Graph("g", Source("a"))'), "--offline", *options])

    assert result.exit_code == 2
    assert "text, kafka-acls or json" in result.output or "Add --acls" in result.output


def test_offline_plan_mentions_addresses_that_workers_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they need not be set."""
    monkeypatch.delenv("PAY_API", raising=False)
    target = program(
        tmp_path, 'Graph("g", Source("a"), Processor(f, name="p", inputs="a", effects={"h": Http(env="PAY_API")}))'
    )
    Path(target.rpartition(":")[0]).write_text(
        "from cues_kafka import *\ndef f(a, h): ...\n" + Path(target.rpartition(":")[0]).read_text()
    )
    result = CliRunner().invoke(app, ["plan", target, "--offline"])
    assert result.exit_code == 0, result.output
    assert "PAY_API is not set. Set it to the address where workers run" in result.output


def on(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find this cluster."""
    monkeypatch.setattr("cues_kafka.brokers.open.open_broker", lambda _: broker)


def test_the_exit_code_tells_whether_anything_would_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 until it is applied, then 0; a refusal is 1 whatever would change."""
    broker = MemoryBroker()
    on(broker, monkeypatch)
    target = program(tmp_path, 'Graph("g", Source("a"), Processor(same, name="p", inputs="a", outputs="b"))')

    def ends(*options: str) -> int:
        return CliRunner().invoke(app, ["plan", target, "--bootstrap", "localhost:9092", *options]).exit_code

    assert (ends("--exit-code"), ends()) == (3, 0)
    assert ends("--apply") == 0
    assert ends("--exit-code") == 0
    broker.add_partitions("a", 2)
    assert ends("--exit-code") == 3
    broker.configure("g.p.backing", {"cleanup.policy": "delete"})
    assert ends("--exit-code") == 1


def test_plan_apply_makes_our_tables_in_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan says before that they are missing, and makes none; a start that must not make them says the command."""
    on(broker := MemoryBroker(), monkeypatch)
    path = tmp_path / "shop.db"
    effects = f'effects={{"db": Sql("sqlite:///{path}")}}'
    target = program(tmp_path, f'Graph("g", Source("a"), Processor(book, name="p", inputs="a", {effects}))')
    file = Path(target.rpartition(":")[0])
    file.write_text(f"from cues_kafka import Sql\ndef book(a, db): ...\n{file.read_text()}")
    graph, missing = load_graph(target), "the tables cues_task and cues_outbox do not exist in this database"

    def tables() -> set[str]:
        with closing(sqlite3.connect(path)) as opened:
            return {name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def planned(*options: str) -> Result:
        return CliRunner().invoke(app, ["plan", target, "--bootstrap", "localhost:9092", *options])

    assert "the database has no tables cues_task and cues_outbox. `plan --apply`" in planned().output
    broker.create(plan_start(graph, broker, Terms()).create)
    with pytest.raises(ConfigError, match=f"p, effects.'db'.: {missing}. `cues-kafka plan MODULE:GRAPH --apply`"):
        prepare(graph, broker, terms=Terms(create_topics=False))
    assert tables() == set()

    applied = planned("--apply")
    assert (applied.exit_code, tables()) == (0, {"cues_task", "cues_outbox"}), applied.output
    assert "has no tables" not in planned().output
    prepare(graph, broker, terms=Terms(create_topics=False))


def test_tasks_that_would_stop_are_said_with_commands_to_paste(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the graph that the command was given; 1, although the plan refuses nothing."""
    tester = Tester(
        load_graph(program(tmp_path, 'Graph("g", Source("a"), Processor(same, name="p", inputs="a", outputs="b"))'))
    )
    tester.send("a", 1)
    tester.run()
    tester.stop()
    on(tester.broker, monkeypatch)
    again = tmp_path / "again"
    again.mkdir()
    target = program(
        again, 'Graph("g", Source("a"), Processor(same, name="p", inputs="a", outputs="b", strategy="at-least-once"))'
    )

    def shown(*options: str) -> Result:
        return CliRunner().invoke(app, ["plan", target, "--bootstrap", "localhost:9092", *options])

    assert shown().exit_code == 0
    assert shown("--records").exit_code == shown("--records", "--exit-code").exit_code == 1
    said = shown("--records").stdout
    assert "\nTasks that would stop:\n  p/0: the newest record of 'g.p.backing' was written exactly-once; " in said
    assert f"Remedy: `cues-kafka strategy {target} p` changes it" in said
    [stop] = json.loads(shown("--records", "--json").stdout)["stops"]
    assert stop["tasks"] == ["p/0"]
    assert json.loads(shown("--json").stdout)["stops"] is None
    assert shown("--records", "--offline").exit_code == 2


@pytest.mark.parametrize("other", ["--offline", "--apply"])
def test_an_exit_code_of_what_is_not_compared_is_a_wrong_setting(tmp_path: Path, other: str) -> None:
    """It would always be the same."""
    result = CliRunner().invoke(app, ["plan", program(tmp_path, 'Graph("g", Source("a"))'), "--exit-code", other])

    assert result.exit_code == 2
    assert f"Drop {other}" in result.output
