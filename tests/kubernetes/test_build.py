"""`docker/kubernetes` through kustomize, and each object against the schema of its kind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.kubernetes import tools
from tests.kubernetes.manifests import BASES, EXAMPLE, KUBERNETES, documents

pytestmark = [pytest.mark.full, pytest.mark.timeout(tools.BUILD_S)]

VERSIONS = ("1.31.0", "1.37.0")
"""The oldest and the newest Kubernetes whose schemas are asked."""


@pytest.fixture(scope="module")
def example() -> list[dict[str, Any]]:
    """The overlay with all parts."""
    return tools.built(EXAMPLE)


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The object of a kind with a name, which may have a hash behind it."""
    [found] = [one for one in objects if one["kind"] == kind and one["metadata"]["name"].startswith(name)]
    return found


def own_kinds(objects: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those that Kubernetes itself does not have."""
    for one in objects:
        group = one["apiVersion"].partition("/")[0]
        if "." in group and not group.endswith(".k8s.io"):
            yield one


def test_kubernetes_takes_every_object(example: list[dict[str, Any]]) -> None:
    """Also the template of Spark's executors, and no field that it does not know."""
    others = [*own_kinds(example)]
    objects = [one for one in example if one not in others] + documents(KUBERNETES / "spark" / "executor.yaml")

    for version in VERSIONS:
        assert tools.refused(objects, version) == []
    wrong = json.loads(json.dumps(named(example, "StatefulSet", "shop")))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    assert len(tools.refused([wrong], VERSIONS[-1])) == 1


def test_keda_and_the_operator_of_prometheus_take_their_objects(example: list[dict[str, Any]]) -> None:
    """By the definitions of their own releases."""
    found, checked = tools.definitions(), []
    for one in own_kinds(example):
        jsonschema.Draft202012Validator(found[one["apiVersion"], one["kind"]]).validate(one)
        checked.append(one["kind"])

    assert sorted(checked) == ["ScaledObject", "ServiceMonitor", "TriggerAuthentication"]
    wrong = json.loads(json.dumps(named(example, "ScaledObject", "shop")))
    wrong["spec"]["scaleTargetReff"] = wrong["spec"].pop("scaleTargetRef")
    assert not jsonschema.Draft202012Validator(found[wrong["apiVersion"], wrong["kind"]]).is_valid(wrong)


@pytest.mark.parametrize("base", BASES)
def test_a_base_builds_alone(base: str) -> None:
    """Without the components, for clusters that lack their kinds."""
    assert [*own_kinds(tools.built(KUBERNETES / base))] == []


def test_the_overlay_gives_all_parts_its_namespace_its_image_and_its_cluster(example: list[dict[str, Any]]) -> None:
    """Spark's executors get the image too, and KEDA the number of pods."""
    text = json.dumps(example)
    cluster = named(example, "ConfigMap", "kafka")["metadata"]["name"]
    driver = named(example, "StatefulSet", "totals")["spec"]["template"]["spec"]["containers"][0]

    assert not re.search(r'"image": "cues-kafka', text)
    assert {one["metadata"].get("namespace") for one in example if one["kind"] != "Namespace"} == {"shop"}
    assert text.count(f'"name": "{cluster}"') == 4, "three pods name it, with the hash of its content"
    assert driver["image"] == "registry.example.com/totals:1.0.0"
    assert {"name": "EXECUTOR_IMAGE", "value": driver["image"]} in driver["env"]
    assert "replicas" not in named(example, "StatefulSet", "shop")["spec"]
    for kind, name in (
        ("ConfigMap", "shop-settings-"),
        ("ConfigMap", "totals-settings-"),
        ("ConfigMap", "totals-spark-"),
    ):
        hashed = named(example, kind, name)["metadata"]["name"]
        assert json.dumps({"name": hashed}) in text
