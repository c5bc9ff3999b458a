"""AMQP 1.0's library is built here, and cannot be built without a C compiler."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from cues_kafka import Amqp, ConfigError


def test_proton_is_installed() -> None:
    """Without it the other tests of AMQP 1.0 are left out, so this one says so."""
    assert find_spec("proton"), "python-qpid-proton is not installed: install a C compiler, and run .ci/setup again"


def test_without_it_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the source or the target is opened."""
    monkeypatch.setitem(sys.modules, "proton", None)
    for name in [one for one in sys.modules if one.startswith("cues_kafka.bridges.amqp.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ConfigError, match=r"pip install 'cues-kafka\[amqp\]'"):
        Amqp("amqp://h").login()
