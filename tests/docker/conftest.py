"""The engine, with the images that cannot be pulled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docker import parts
from tests.docker.engine import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine of this run, with the base image, and with Compose."""
    engine = Engine()
    engine.start()
    try:
        parts.compose(engine.config)
        parts.base_image(engine)
        yield engine
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def kafka_image(engine: Engine) -> str:
    """The name of Kafka's image, which is there from now on."""
    parts.kafka_image(engine)
    return parts.KAFKA


@pytest.fixture(scope="session")
def registry_image(engine: Engine) -> str:
    """The name of the registry's image, which is there from now on."""
    parts.registry_image(engine)
    return parts.REGISTRY
