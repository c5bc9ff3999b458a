"""What docs/clusters.md shows of managed clusters, as far as it can be known without one."""

from __future__ import annotations

import base64
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import confluent_kafka
import pytest

from cues_kafka import Graph
from cues_kafka.brokers.options import Kafka
from cues_kafka.brokers.security import OAuthBearer
from cues_kafka.cli.loading import load_graph
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import Sides

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "clusters.md"
ROLES = ("worker", "sender", "deployer", "operator", "verifier")


def shown(word: str) -> Any:
    """The program of the page that has this word, as a module."""
    [text] = [
        text
        for text in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        if word in text
    ]
    module = ModuleType("shown")
    exec(compile(text, str(PAGE), "exec"), module.__dict__)
    return module


def graphs() -> dict[str, Graph]:
    """Every graph of the examples that can be planned without a cluster."""
    found = {}
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text("utf-8")
        if re.search(r"^graph = Graph\(", text, re.MULTILINE) and not re.search(r"pattern=", text):
            found[path.name] = load_graph(f"{path}:graph")
    return found


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process at Amazon; no other place is looked at."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session/+=")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("credentials")
def test_a_token_of_msk_is_a_signed_request_that_ends() -> None:
    """Within a quarter of an hour, in seconds and not in the milliseconds of Amazon's package."""
    text, end = shown("MSKAuthTokenProvider").token(None)

    assert time.time() + 800 < end <= time.time() + 900
    request = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    assert request.hostname == "kafka.eu-central-1.amazonaws.com"
    asked = parse_qs(request.query)
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Security-Token"] == ["session/+="]


@pytest.mark.usefixtures("credentials")
def test_the_client_takes_the_tokens_of_msk() -> None:
    """The client checks the characters and the end of a token, and says so before it connects anywhere."""
    made: list[Any] = []
    function = shown("MSKAuthTokenProvider").token

    def token(config: Any) -> Any:
        made.append(function(config))
        return made[-1]

    errors: list[confluent_kafka.KafkaError] = []
    settings = Kafka("127.0.0.1:1", security=OAuthBearer(token=token)).settings("admin", client_id="x")
    client = confluent_kafka.Producer({**settings, "error_cb": errors.append})
    deadline = time.monotonic() + 20
    while not (made and errors) and time.monotonic() < deadline:
        client.poll(0.05)

    assert made
    assert {error.code() for error in errors} <= {
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
    }, errors


@pytest.mark.parametrize("role", ROLES)
def test_the_programs_translate_every_right_of_every_example(role: str) -> None:
    """A right that they do not know would raise, and each one that they know reaches the result."""
    policy, user = shown("def policy").policy, shown("def user").user
    assert len(graphs()) > 5
    for graph in graphs().values():
        rights = [acl for acl in plan(graph).acls if acl.role == role]
        resources = [one["Resource"].rpartition("/")[2] for one in policy(graph, role)["Statement"][1:]]
        assert set(resources) == {acl.name + ("*" if acl.pattern == "prefixed" else "") for acl in rights}
        rules = user(graph, role, "shop")["spec"]["authorization"]["acls"]
        told = {(r["resource"]["name"], operation) for r in rules for operation in r["operations"]}
        assert told == {(acl.name, acl.operation) for acl in rights}


def test_a_policy_of_a_worker_has_what_amazon_asks_for() -> None:
    """Transactions need the right to the id, to the topic, and to write idempotently."""
    page = shown("def policy")
    statements = {
        one["Resource"].rpartition(":")[2]: one["Action"] for one in page.policy(page.graph, "worker")["Statement"]
    }
    place = page.CLUSTER

    assert statements[f"cluster/{place}"] == ["kafka-cluster:Connect", "kafka-cluster:WriteDataIdempotently"]
    assert statements[f"transactional-id/{place}/shop.check.*"] == [
        "kafka-cluster:AlterTransactionalId",
        "kafka-cluster:DescribeTransactionalId",
    ]
    assert statements[f"topic/{place}/shop.all"] == [
        "kafka-cluster:DescribeTopic",
        "kafka-cluster:DescribeTopicDynamicConfiguration",
        "kafka-cluster:WriteData",
    ]
    assert statements[f"group/{place}/shop.check"] == ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"]


def test_no_right_is_to_the_whole_cluster_or_to_everything() -> None:
    """Shared clusters give neither."""
    for graph in graphs().values():
        for acl in plan(graph, sides=Sides(status=True, control=True)).acls:
            assert acl.resource in ("topic", "group", "transactional-id")
            assert acl.name not in ("", "*")
            assert acl.operation not in ("All", "IdempotentWrite", "ClusterAction")
