"""The dashboard, the alert rules and the page about metrics: all that they name is exported, and all is shown."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from cues_kafka.observe.metrics import KINDS, METRICS, STATES

DOCS = Path(__file__).parents[3] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = importlib.import_module("yaml").safe_load(
    (DOCS / "monitoring" / "alerts.yml").read_text()
)["groups"][0]["rules"]
PANELS = [(panel["title"], query) for panel in DASHBOARD["panels"] for query in panel["targets"]]
QUERIES = {f"{title}: {query['legendFormat']}": query["expr"] for title, query in PANELS}
QUERIES |= {rule["alert"]: rule["expr"] for rule in RULES}
LIMITED = {"state": STATES, "kind": KINDS}


def metrics_of(expression: str) -> list[str]:
    """The metrics in it, without the suffix of a part of a histogram."""
    found = []
    for name in re.findall(r"\bcues_kafka_\w+", expression):
        bare = name.removesuffix("_bucket")
        found.append(bare if METRICS.get(bare, METRICS["cues_kafka_ready"]).kind == "histogram" else name)
    return found


@pytest.mark.parametrize("where", QUERIES)
def test_a_query_names_metrics_and_labels_that_are_exported(where: str) -> None:
    """Labels that it groups by, filters by with their values, and shows."""
    expression = QUERIES[where]
    names = metrics_of(expression)
    assert names
    assert set(names) <= METRICS.keys()
    known = set.intersection(*({*METRICS[name].labels} for name in names))
    known |= {"le"} if "_bucket" in expression else set()
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
    filters = re.findall(r'(\w+)=~?"([^"]*)"', expression)
    shown = set(re.findall(r"{{(\w+)}}", where))
    assert grouped | {label for label, _ in filters} | shown <= known
    assert shown <= grouped or not grouped
    assert all(value in LIMITED[label] for label, value in filters if label in LIMITED)


@pytest.mark.parametrize("where", QUERIES)
def test_a_query_is_one_of_prometheus(where: str) -> None:
    """By a parser that also checks types: `rate` takes a range, and `>` does not."""
    promql_parser.parse(QUERIES[where].replace("$__rate_interval", "5m"))  # which Grafana fills in


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_shows_labels_that_its_query_keeps_and_is_on_the_page(rule: dict[str, Any]) -> None:
    """An empty label in a message at night helps no one."""
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(", ")}
    kept = grouped or {*METRICS[metrics_of(rule["expr"])[0]].labels}
    shown = {label for text in rule["annotations"].values() for label in re.findall(r"\$labels\.(\w+)", text)}
    wakes = {"page": "at once", "ticket": "next morning"}[rule["labels"]["severity"]]

    assert shown <= kept
    assert re.search(rf"^\| `{rule['alert']}` \| the team of the \w+, {wakes} \|", page(), re.MULTILINE)


def limits(rule: dict[str, Any]) -> list[str]:
    """How the page says the numbers of a rule: what it looks back over, its limit, and for how long that must last."""
    expression, found = rule["expr"], []
    if window := re.search(r"\[(\d+)([mh])\]", expression):
        found.append("last hour" if window[2] == "h" else f"{window[1]} min")
    if limit := re.search(r" > ([\d.]+)$", expression):
        value = float(limit[1])
        if "increase(" in expression:
            found += [f"more than {value:g} times"] if value else []
        elif "_bucket" in expression:
            found.append(f"longer than {value:g} s")
        else:
            found.append("more than a tenth" if "rate(" in expression else f"than {value / 60:g} min")
    if "quantile" in expression:
        assert "quantile(0.99," in expression
        found.append("in a hundred of the last")
    return [*found, *([f"for {rule['for'].removesuffix('m')} min"] if "for" in rule else [])]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_the_page_says_the_limits_of_an_alert(rule: dict[str, Any]) -> None:
    """Each number of the rule; a rule without a number needs none."""
    row = re.search(rf"^\| `{rule['alert']}` \|.*$", page(), re.MULTILINE)
    assert row is not None

    assert [one for one in limits(rule) if one not in row[0]] == []
    times = set(re.findall(r"(\d+) min", row[0].split("|")[3]))
    assert times <= {*re.findall(r"(\d+) min", " ".join(limits(rule)))}


def test_the_dashboard_shows_every_metric_and_the_page_explains_it() -> None:
    """A new metric needs a place in both."""
    shown = {name for where, text in QUERIES.items() if ": " in where for name in metrics_of(text)}
    assert shown == METRICS.keys()
    assert not [name for name in METRICS if f"`{name}`" not in page()]
    assert "label_values(cues_kafka_ready, graph)" in DASHBOARD["templating"]["list"][1]["query"]["query"]


def test_the_page_names_no_alert_that_is_not_there() -> None:
    """And each one once."""
    assert sorted(re.findall(r"^\| `(Cues\w+)`", page(), re.MULTILINE)) == sorted(rule["alert"] for rule in RULES)


def test_names_and_labels_follow_the_conventions_of_prometheus() -> None:
    """Counters end in _total, times in _seconds; labels have few values."""
    for name, metric in METRICS.items():
        assert (metric.kind == "counter") == name.endswith("_total")
        assert re.fullmatch(r"cues_kafka_[a-z_]+", name)
        assert {*metric.labels} <= {"graph", "processor", "partition", "worker", "kind", "state", "topic"}
        assert metric.about.endswith(".")


def page() -> str:
    """The page about watching."""
    return (DOCS / "watch.md").read_text(encoding="utf-8")
