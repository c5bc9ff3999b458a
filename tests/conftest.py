"""Fixtures of all tests: those that are shipped to users, and servers; and the order in which files are begun."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cues_kafka.brokers.temporary import locked_directory
from cues_kafka.testing.fixtures import KafkaFixture
from tests import examples, families
from tests.costs import Costs
from tests.spark.archive import jvm_options
from tests.sweeping import Sweeper
from tests.testers import HEAVY, SPARE_S, HeavyScheduling, end_after, limit_s


def _own_temporary_directory() -> None:
    """Give the whole run one temporary directory, and remove it at the end; the next run removes it after a kill."""
    directory, _ = locked_directory("cues-kafka-pytest-", Path(tempfile.gettempdir()))
    os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
    # Not in a forked child, and behind the directory in it of the server that forks (priority -100).
    Finalize(None, shutil.rmtree, args=(directory, True), exitpriority=-200)


if "PYTEST_XDIST_WORKER" not in os.environ:  # the workers of a run use the directory that started them
    _own_temporary_directory()

# Where a shell starts a run in the background, the run ignores Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine only.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("busy"), derandomize=True)

os.environ.setdefault("SPARK_SUBMIT_OPTS", f"-Djava.io.tmpdir={tempfile.gettempdir()} {jvm_options()}")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:-UsePerfData")

pytest_plugins = ["tests.servers.fixtures"]
# Where the package is installed, pytest has the plugin by its entry point; from a bare checkout it is named here.
if not any(entry.value == "cues_kafka.testing.fixtures" for entry in entry_points(group="pytest11")):
    pytest_plugins.append("cues_kafka.testing.fixtures")

NEED_PROTON = ("unit/bridges/amqp/test_credit.py", "servers/test_amqp*.py")
"""Tests of AMQP 1.0 that need its library, which is built; where it is missing, one test says so: test_installed.py."""

collect_ignore_glob = [] if find_spec("proton") else list(NEED_PROTON)

LONGEST = (*HEAVY, "tests/proof/", "tests/test_docs.py", "tests/fault/", "tests/integration/", "tests/contract/")
"""What takes minutes begins first, in this order, so that no tester waits for another one's last file."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep a million collected things, which live to the end, out of garbage collections, then and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """See `LONGEST` and `tests.families`."""
    families.mark(items, whole=not any("::" in argument for argument in config.args))

    def place(item: pytest.Item) -> int:
        return next((n for n, prefix in enumerate(LONGEST) if item.nodeid.startswith(prefix)), len(LONGEST))

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where files are shared out among testers, see `HeavyScheduling`; else as pytest-xdist has it."""
    return HeavyScheduling(config, log) if config.getoption("dist") == "loadfile" else None


STDERR = pytest.StashKey[int]()
"""Where the process itself prints: while a test runs, what is printed is captured."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """See `tests.costs`."""
    parser.addoption(
        "--costs", type=int, default=0, metavar="N", help="print the N costliest tests by processor seconds"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is captured yet. Each ordinary run tries the same few examples; the longer tests search for new ones."""
    config.stash[STDERR] = os.dup(2)
    if "not full" in config.getoption("markexpr"):
        settings.load_profile("same")
    else:
        settings.load_profile("busy")
        examples.all_of_them()
    if shown := config.getoption("costs"):
        shares_out = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
        config.pluginmanager.register(Costs(shown, shares_out=shares_out), "costs")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Beyond pytest-timeout, which needs a main thread that comes back to Python, and does not watch what cleans up."""
    if limit := limit_s(item):
        end_after(limit + SPARE_S, item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


LOGGERS = ("", "py4j", *(f"cues_kafka{name}" for name in ("", ".librdkafka", ".start", ".task", ".spark", ".worker")))
"""What `cues-kafka run` and the explorer set levels of, or give filters: the root logger is the first one."""


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """What a command sets for its process does not hold for the tests behind it: which logger says what."""
    before = [(logger, logger.level, logger.filters[:]) for logger in map(logging.getLogger, LOGGERS)]
    yield
    for logger, level, filters in before:
        logger.setLevel(level)
        logger.filters[:] = filters


@pytest.fixture(scope="session")
def _sweeper(kafka_cluster: str) -> Sweeper:
    """Of this tester."""
    return Sweeper(kafka_cluster)


@pytest.fixture
def kafka(kafka: KafkaFixture, _sweeper: Sweeper) -> Iterator[KafkaFixture]:
    """The fixture that is shipped; the topics of the test go some tests later."""
    yield kafka
    _sweeper.over(kafka.prefix)
