"""The fake beside IBM's own package, version 2.1.2: names, numbers and calls are the real ones."""

from __future__ import annotations

import ast
import inspect
import re
from importlib.metadata import files, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cues_kafka.bridges.ibmmq import reasons
from tests.unit.bridges.ibmmq import fake
from tests.unit.bridges.ibmmq.fake import needs_package

pytestmark = needs_package


@pytest.fixture
def package() -> Any:
    """The real package over the fake of its C layer."""
    fake.install()
    import ibmmq

    return ibmmq


def home() -> Path:
    """Where the package is."""
    found = find_spec("ibmmq")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def calls_of_the_c_layer(tree: ast.Module) -> list[tuple[str, int]]:
    """Name and number of arguments of each call of `ibmmqc`, or of what our client calls it."""
    return [
        (node.func.attr, len(node.args))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("ibmmqc", "MQI")
    ]


def parsed(path: Path) -> ast.Module:
    """A file of Python."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_each_reason_code_has_the_name_that_ibm_has_for_it(package: Any) -> None:
    """And each number of ours is the one of that name."""
    for code, reason in reasons.REASONS.items():
        assert getattr(package.CMQC, f"MQRC_{reason.name}") == code
    ours = {name: value for name, value in vars(reasons).items() if isinstance(value, int) and name.isupper()}
    for name, value in ours.items():
        real = f"MQCC_{name}" if name in ("OK", "WARNING", "FAILED") else f"MQRC_{name}"
        assert getattr(package.CMQC, real) == value


def test_real_package_calls_the_c_layer_as_the_fake_takes_it() -> None:
    """The number of arguments of each verb; so does our client."""
    from cues_kafka.bridges.ibmmq import client

    known = {**fake.VERBS}
    found: set[str] = set()
    paths = [*sorted(home().glob("mq*.py")), Path(inspect.getfile(client))]
    for path in paths:
        for name, count in calls_of_the_c_layer(parsed(path)):
            if name in known:
                assert len(inspect.signature(known[name]).parameters) == count, f"{path.name}: {name}"
                found.add(name)
    assert found == {*known}
    assert {name for name, _ in calls_of_the_c_layer(parsed(Path(inspect.getfile(client))))} <= {*known}


def test_c_layer_of_the_real_package_has_each_verb_of_the_fake() -> None:
    """Its compiled file names them, with the order of what they take and give."""
    [library] = home().glob("ibmmqc*.so")
    compiled = library.read_bytes()
    for name in fake.VERBS:
        assert re.search(rb"\0%b\0" % name.encode(), compiled), name
    assert b"MQGET(qMgr, qHandle, mDesc, getOpts, maxlen)" in compiled
    assert b"MQPUT1(qMgr, qDesc, mDesc, options, msg)" in compiled or b"MQPUT1(" in compiled
    assert b"MQDISC" in compiled


def test_client_reads_and_writes_fields_that_the_real_structures_have(package: Any) -> None:
    """A misspelt field would be set on the object, and never be sent."""
    from cues_kafka.bridges.ibmmq import client

    made = {
        "channel": package.CD(),
        "options": package.CNO(),
        "keys": package.SCO(),
        "found": package.MD(),
        "own": package.MD(),
    }
    seen = 0
    for node in ast.walk(parsed(Path(inspect.getfile(client)))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr[0].isupper():
            name = node.value.id
            if name in made:
                assert node.attr in made[name].get(), f"{name}.{node.attr}"
                seen += 1
            elif name == "how":
                assert node.attr in {**package.GMO().get(), **package.PMO().get()}
                seen += 1
            elif name == "CMQC":
                assert hasattr(package.CMQC, node.attr)
                seen += 1
    assert seen > 40


def test_fake_stands_under_the_python_files_of_the_package_and_in_place_of_none(package: Any) -> None:
    """Only the C layer is ours."""
    assert package.ibmmqc.MQGET is fake.mqget
    assert Path(package.__file__).parent == home()
    assert package.__version__ == version("ibmmq")
    assert str(package.MQMIError(2, 2009)) == "MQI Error. Comp 2, Reason 2009: FAILED: MQRC_CONNECTION_BROKEN"
    assert not any(str(one).endswith("ibmmqc.py") for one in files("ibmmq") or ())
