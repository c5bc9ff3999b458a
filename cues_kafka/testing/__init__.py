"""
Tools for testing graphs: a tester without a broker, fixtures for pytest, and contract suites for codecs and targets.

A name is imported when it is first used: `Tester` needs the core alone, and the fixtures need the extra `testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cues_kafka.testing.codecs import check_codec
    from cues_kafka.testing.containers import KafkaContainer, RegistryContainer
    from cues_kafka.testing.fixtures import FaultClusters, KafkaFixture
    from cues_kafka.testing.registry import TestRegistry
    from cues_kafka.testing.targets import TargetContract
    from cues_kafka.testing.tester import Crash, Tester

_MODULES = {
    "Crash": "cues_kafka.testing.tester",
    "FaultClusters": "cues_kafka.testing.fixtures",
    "KafkaContainer": "cues_kafka.testing.containers",
    "KafkaFixture": "cues_kafka.testing.fixtures",
    "RegistryContainer": "cues_kafka.testing.containers",
    "TargetContract": "cues_kafka.testing.targets",
    "TestRegistry": "cues_kafka.testing.registry",
    "Tester": "cues_kafka.testing.tester",
    "check_codec": "cues_kafka.testing.codecs",
}

__all__ = [
    "Crash",
    "FaultClusters",
    "KafkaContainer",
    "KafkaFixture",
    "RegistryContainer",
    "TargetContract",
    "TestRegistry",
    "Tester",
    "check_codec",
]


if not TYPE_CHECKING:  # a type checker would take any misspelt name for one that is found here

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(module), name)
