"""`IbmMq` where it is declared, and what is said where its package or IBM's client is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest

from cues_kafka import Feed, Graph, GraphError, IbmMq, Sink, Source
from cues_kafka.bridges.ibmmq.declare import FROM_IBMMQ, missing
from cues_kafka.bridges.ibmmq.target import NOT_RUN, TO_IBMMQ
from cues_kafka.errors import ConfigError
from cues_kafka.plan.edges import edges_of
from cues_kafka.plan.plan import plan
from tests.unit.bridges.ibmmq.fake import needs_package

URL = "mq://app:geheim@mq.internal:1415/QM.1?channel=APP.SVRCONN"
ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    "url",
    [
        "mq://host",
        "mq://host/QM1",
        "mq://host?channel=C",
        "mq://host/QM1?channel=",
        "mq://host/QM1?channel=C&queue=A",
        "mq://host/QM1?channel=C&channel=D",
        "mq://host/QM1?channel=C#x",
        "mq://host/*GROUP?channel=C",
        f"mq://host/{'Q' * 49}?channel=C",
        f"mq://host/QM1?channel={'C' * 21}",
        "amqp://host/QM1?channel=C",
        "mq:///QM1?channel=C",
        "mq://host:x/QM1?channel=C",
    ],
)
def test_address_that_cannot_be_is_refused(url: str) -> None:
    """A group of queue managers is, too: each has queues of its own."""
    with pytest.raises(GraphError, match=r"mq://"):
        IbmMq(url)


def test_address_has_queue_manager_and_channel() -> None:
    """And shows in no text."""
    from cues_kafka.bridges.ibmmq.address import IbmMqAddress

    found = IbmMqAddress(URL, "here")
    assert (found.host, found.port, found.queue_manager, found.channel) == ("mq.internal", 1415, "QM.1", "APP.SVRCONN")
    assert (found.user, found.password, found.encrypted) == ("app", "geheim", False)
    assert IbmMqAddress("mqs://h/A%2FB?channel=C", "").queue_manager == "A/B"
    assert IbmMqAddress("mqs://h/Q?channel=C", "").encrypted
    assert "geheim" not in repr(IbmMq(URL)) + found.quiet("app geheim mq.internal")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"env": "MQ"}, "takes an address"),
        ({"heartbeat_s": 0}, "heartbeat_s=0"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"cipher": ""}, "write mq://"),
        ({"cipher": "x" * 33}, "at most 32"),
        ({"key_repository": "é"}, "ASCII"),
    ],
)
def test_declaration_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    """Where it is declared."""
    with pytest.raises(GraphError, match=words):
        IbmMq(URL, **given)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("a b", {}, "at most 48"),
        ("x" * 49, {}, "at most 48"),
        ([], {}, "a list with one for each part"),
        (["A", "A"], {}, "a list with one for each part"),
        ("A", {"prefetch": 0}, "prefetch=0"),
        ("A", {"prefetch": 2501}, "from 1 to 2,500"),
        ("A", {"key": "MsgId"}, "'message_id'"),
        ("A", {"key": "properties."}, "'properties.NAME'"),
    ],
)
def test_queue_that_cannot_be_is_refused(name: Any, given: dict[str, Any], words: str) -> None:
    """Where it is declared."""
    with pytest.raises(GraphError, match=words):
        IbmMq(URL).queue(name, **given)


def test_plan_says_of_both_edges_that_they_were_not_run_against_a_real_queue_manager() -> None:
    """With level and condition, and without the address."""
    shop = IbmMq(URL)
    graph = Graph(
        "shop",
        Feed(shop.queue(["A", "B"]), into="orders", name="in"),
        Source("paid"),
        Sink("out", inputs="paid", into=shop.to_queue("PAID")),
    )
    _, into, out = edges_of(graph)
    assert (into.guarantee, out.guarantee) == ("exactly-once", "exactly-once")
    assert (into.why, out.why) == (FROM_IBMMQ.why, TO_IBMMQ.why)
    assert all(NOT_RUN in one.why for one in (into, out))
    assert graph.feeds["in"].parts == 2
    assert "geheim" not in plan(graph).text() + repr(graph)


NAMES_IT = [
    *sorted((ROOT / "cues_kafka/bridges/ibmmq").glob("*.py")),
    *(
        page
        for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
        if "ibm mq" in page.read_text(encoding="utf-8").lower()
    ),
]
SPARED = {"address.py", "messages.py", "reasons.py", "rfh2.py", "amqp.md", "targets.md"}
"""They say what IBM's manual says, and connect to nothing; the pages say in other words that no real one was there."""


def test_pages_that_name_it_are_found() -> None:
    """Those of the bridge, and those that list all bridges."""
    pages = {path.name for path in NAMES_IT if path.suffix == ".md"}
    assert pages >= {"CHANGELOG.md", "README.md", "api.md", "architecture.md", "bridges.md", "edges.md", "ibmmq.md"}
    assert "messaging-toolkit.md" in pages


@pytest.mark.parametrize("path", NAMES_IT, ids=lambda path: path.name)
def test_each_text_that_names_it_says_that_it_was_not_run_against_a_real_one(path: Path) -> None:
    """IBM MQ was not to be had."""
    text = " ".join(path.read_text(encoding="utf-8").split()).lower()
    assert path.name in SPARED or "not run against a real ibm mq; tested on a fake of its client" in text


def test_variable_that_is_not_set_is_named() -> None:
    """With an address for an example."""
    with pytest.raises(ConfigError, match=r"UNSET_MQ is not set.*mq://host:1414/QM1\?channel="):
        IbmMq(env="UNSET_MQ").queue("A").open()


def test_missing_package_is_named_with_its_extra() -> None:
    """And with the client that it needs."""
    said = str(missing(ModuleNotFoundError("No module named 'ibmmq'", name="ibmmq")))
    assert "pip install 'cues-kafka[ibmmq]'" in said
    assert "redistributable client" in said


USES = ("queue('A').open()", "target().open(TaskName('g', 'p', 0))", "queue('A').read(0, None, 1)")


@needs_package
@pytest.mark.skipif(bool(find_library("mqm_r")), reason="IBM's client is here")
def test_missing_client_of_ibm_is_named_with_its_remedy() -> None:
    """The real package, in a process without a fake: it does not find the library of IBM's client."""
    code = "from cues_kafka import ConfigError, IbmMq\nfrom cues_kafka.targets import TaskName\n"
    for use in USES:
        code += f"try:\n    IbmMq({URL!r}).{use}\nexcept ConfigError as error:\n    print(error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(USES)
    for line in lines:
        assert re.search(r"ibmmq.*does not find IBM's C client.*libmqm.*redistributable client.*setmqenv", line)
    assert "geheim" not in done.stdout + done.stderr
