"""Testers of pytest-xdist share one broker, which starts when the first of them asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, Self

import pytest

from cues_kafka.errors import BrokerError, ConfigError
from cues_kafka.testing import fixtures
from cues_kafka.testing.sharing import SharedBroker


class Recorded:
    """Stands for a local broker: which of them were started, and which were stopped."""

    bootstrap = "127.0.0.1:1234"

    def __init__(self, *refusals: str) -> None:
        self.refusals = [*refusals]
        self.calls: list[str] = []

    def start(self) -> Self:
        self.calls.append("start")
        if self.refusals:
            raise ConfigError(self.refusals.pop(0))
        return self

    def stop(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def started() -> Iterator[Any]:
    """Shares brokers until the test is over."""
    running: list[SharedBroker] = []

    def share(broker: Recorded) -> SharedBroker:
        running.append(SharedBroker(broker.start))
        return running[-1]

    yield share
    for shared in running:
        shared.close()


def test_broker_starts_once_however_many_ask_at_the_same_time(started: Any) -> None:
    """Twelve askers hear the same address; before the first one, nothing has started."""
    broker = Recorded()
    shared = started(broker)
    assert broker.calls == []
    with ThreadPoolExecutor(12) as threads:
        answers = [*threads.map(lambda _: shared.owner.ask(), range(12))]

    assert answers == [broker.bootstrap] * 12
    assert broker.calls == ["start"]


def test_close_stops_the_broker_and_leaves_no_thread() -> None:
    """Who asks behind it is refused, and nothing is started for the question."""
    broker = Recorded()
    shared = SharedBroker(broker.start)
    shared.owner.ask()
    shared.close()

    assert broker.calls == ["start", "stop"]
    assert not shared._thread.is_alive()
    with pytest.raises(BrokerError, match=r"does not answer .*Run the tests again"):
        shared.owner.ask()


def test_close_of_a_broker_that_no_test_asked_for_starts_none(started: Any) -> None:
    """A run of unit tests costs no JVM."""
    broker = Recorded()
    started(broker).close()

    assert broker.calls == []


def test_start_that_is_refused_is_told_to_who_asked_and_tried_again(started: Any) -> None:
    """In the words of the refusal, which hold the remedy."""
    broker = Recorded("there is no Java; install it")
    owner = started(broker).owner
    with pytest.raises(BrokerError, match="there is no Java; install it"):
        owner.ask()

    assert owner.ask() == broker.bootstrap


def test_stranger_without_the_key_is_refused_and_the_next_question_is_answered(started: Any) -> None:
    """Any process of the machine can reach the port."""
    broker = Recorded()
    owner = started(broker).owner
    with pytest.raises(BrokerError, match="does not answer"):
        owner._replace(key="guessed").ask()

    assert broker.calls == []
    assert owner.ask() == broker.bootstrap


def process(**attributes: Any) -> Any:
    """What the hooks need of pytest's configuration in one process of a run."""
    defaults = {f"cues_kafka_{name.replace('-', '_')}": default for name, (default, *_) in fixtures.CHOICES.items()}
    return SimpleNamespace(stash=pytest.Stash(), getoption=lambda name: None, getini=defaults.__getitem__, **attributes)


def begin(controller: Any, *, here: bool = True) -> Any:
    """A tester as the controller starts it, on this machine or on another."""
    tester = process(workerinput={})
    gateway = SimpleNamespace(spec=SimpleNamespace(popen=here))
    fixtures.pytest_configure_node(SimpleNamespace(config=controller, workerinput=tester.workerinput, gateway=gateway))
    return tester


def test_all_testers_of_a_run_have_the_same_broker_which_ends_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that replaces a tester that has died; a tester that ends stops nothing."""
    broker = Recorded()
    monkeypatch.setattr(fixtures, "_local_broker", lambda: broker)
    controller = process()
    try:
        for tester in (begin(controller), begin(controller), begin(controller)):
            with ExitStack() as running:
                assert fixtures._broker_of_run(tester, running) == broker.bootstrap
            fixtures.pytest_unconfigure(tester)
        assert broker.calls == ["start"]
    finally:
        fixtures.pytest_unconfigure(controller)

    assert broker.calls == ["start", "stop"]


@pytest.mark.parametrize("config", [process(), begin(process(), here=False)], ids=["alone", "elsewhere"])
def test_process_that_shares_none_has_a_broker_of_its_own(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its tests run."""
    broker = Recorded()
    monkeypatch.setattr(fixtures, "_local_broker", lambda: broker)
    with ExitStack() as running:
        assert fixtures._broker_of_run(config, running) == broker.bootstrap
        assert broker.calls == ["start"]

    assert broker.calls == ["start", "stop"]
