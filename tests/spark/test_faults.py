"""Plain processors on Spark, killed in every way, on a real broker; readers see each message's one outcome."""

from __future__ import annotations

import os
import random
import shutil
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cues_kafka import Kafka
from cues_kafka.brokers.open import open_broker
from cues_kafka.operate.applying import apply_plan
from cues_kafka.operate.move.accept_loss import accept_loss
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.plan.plan import plan
from cues_kafka.plan.topics import topics_to_ask
from cues_kafka.task.making.prepare import prepare
from cues_kafka.testing.fixtures import FaultClusters, KafkaFixture
from tests.fault.support import Record, Setup, backing, committed_all, outcomes, trim, until
from tests.spark.drivers import SINKS, STARTED_S, Drivers, Load, Numbers, await_open, hidden, readable, stable
from tests.spark.fault_driver import DEADLY, NIL, PARTITIONS, graph
from tests.spark.standalone import standalone

pytestmark = [pytest.mark.fault, pytest.mark.timeout(400)]


@pytest.fixture
def setup(kafka: KafkaFixture) -> Setup:
    """Names of the test's own; its topics and first records are there before the first driver."""
    return prepared(Setup(kafka.bootstrap, kafka.unique("g")))


def prepared(setup: Setup, *args: Any) -> Setup:
    """Topics, and a first record of each task."""
    setup.start(graph(setup.name, *args)).stop()
    return setup


def before(effect: str, nth: int = 1, **more: Any) -> dict[str, Any]:
    """Settings of a driver one of whose slots pauses there; its second transaction is the first with outputs."""
    return {"point": {"where": f"before {effect}", "nth": nth, **more}}


def after(effect: str, nth: int = 1, **more: Any) -> dict[str, Any]:
    """The same, behind it."""
    return {"point": {"where": f"after {effect}", "nth": nth, **more}}


# ---- the driver and its JVM


@pytest.mark.full
def test_drivers_that_die_in_a_transaction_and_behind_a_batch_repeat_and_hide_nothing(
    setup: Setup, tmp_path: Path
) -> None:
    """Two kills of driver and JVM: a slot is about to commit; all slots have delivered, Spark has not noted it."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path) as drivers:
        in_transaction = drivers.add(**before("Commit", 2))
        in_transaction.reached()
        await_open(setup)
        marks = stable(setup)
        in_transaction.kill_all()

        behind_batch = drivers.add(batches=1).started()
        assert readable(stable(setup), marks), "readers wait for a dead transaction"
        behind_batch.reached("behind batch")
        assert numbers.delivered() == 200
        behind_batch.kill_driver()
        numbers.send(50)

        last = drivers.add().started()
        numbers.wait()
        last.stop()
    numbers.check()


KILLS = {
    "in a transaction": [before("Commit", 1), after("Flush", 2), before("Commit", 3)],
    "opening a transaction": [before("Begin", 3), before("SendOffsets", 2), before("Flush", 2)],
    "between transactions": [
        before("Init"),
        before("ReadNewest"),
        before("Call"),
        after("Commit", 1),
        after("Commit", 2),
    ],
    "between slots": [before("Init", partition=2), before("Init", partition=3)],
    "behind a batch": [{"batches": 1}, {"batches": 2}],
    "entering": [before("Init", entering=True), after("ReadNewest", entering=True, partition=3)],
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", KILLS)
def test_drivers_that_die_one_after_the_other_repeat_and_hide_nothing(setup: Setup, tmp_path: Path, where: str) -> None:
    """Each with its JVM, in turn with and without its workers; new messages before each; small transactions."""
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path, limit=120, policy={"max_messages": 15}) as drivers:
        marks = stable(setup)
        for number, kill in enumerate(KILLS[where]):
            numbers.send(160, transaction=number % 2 == 0)
            driver = drivers.add(**kill)
            driver.reached()
            if "entering" not in kill.get("point", {}):
                assert readable(stable(setup), marks), "readers wait for a dead transaction"
            if where == "in a transaction":
                await_open(setup)
            marks = stable(setup)
            driver.kill_all() if number % 2 else driver.kill_driver()
        last = drivers.add().started()
        assert readable(stable(setup), marks), "readers wait for a dead transaction"
        numbers.wait()
        last.stop()
    numbers.check()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_drivers_that_die_at_random_repeat_and_hide_nothing(setup: Setup, tmp_path: Path, seed: int) -> None:
    """Ten kills of driver and JVM at any moment between start and idle, while messages come."""
    chance, numbers, met_open = random.Random(seed), Numbers(setup), 0
    with Drivers(setup, tmp_path, limit=100, policy={"max_messages": 10}) as drivers, Load(numbers) as load:
        marks = stable(setup)
        for _ in range(10):
            driver = drivers.add()
            if chance.random() < 0.9:
                driver.started()
                assert readable(stable(setup), marks), "readers wait for a dead transaction"
            threading.Event().wait(chance.uniform(0.0, 12.0))  # the moment is the fault; nothing is waited for
            chance.choice([driver.kill_all, driver.kill_driver])()
            marks = stable(setup)
            met_open += hidden(marks)
        last = drivers.add().started()
        assert readable(stable(setup), marks), "readers wait for a dead transaction"
        load.finish()
        numbers.wait(180)
        last.stop()
    print(f"seed {seed}: {met_open} of 10 kills met an open transaction, {numbers.count} messages")
    numbers.check()


ZOMBIES = {
    "before its init": (before("Init"), False),
    "before it reads where it stands": (before("ReadNewest"), True),
    "before its transaction": (before("Begin", 2), True),
    "in its transaction": (before("SendOffsets", 2), True),
    "before its commit": (before("Commit", 2), True),
    "in user code": (after("Call"), True),
}


@pytest.mark.slow
@pytest.mark.parametrize("where", ZOMBIES)
def test_a_python_worker_that_outlives_its_driver_doubles_nothing(setup: Setup, tmp_path: Path, where: str) -> None:
    """Paused while its driver dies, awake again beside the next one: fenced, or behind its init a slot like others."""
    numbers = Numbers(setup)
    numbers.send(200)
    settings, is_fenced = ZOMBIES[where]
    with Drivers(setup, tmp_path) as drivers:
        dead = drivers.add(**settings)
        zombie = dead.reached()
        marks = stable(setup)
        dead.kill_all(zombie)

        driver = drivers.add().started()
        assert readable(stable(setup), marks), "readers wait for a transaction of the zombie"
        numbers.wait()
        dead.wake(zombie)
        numbers.send(50)
        until(lambda: not dead.lives(zombie), "the zombie has come to its end", 90)
        numbers.wait()
        assert is_fenced == any("then before Stop" in line for line in dead.lines), dead.lines
        until(lambda: not hidden(stable(setup)), "the zombie hides nothing", 10)
        assert not any(line.startswith("stopped") for line in driver.lines)
        driver.stop()
    numbers.check()


# ---- Python workers and executors


@pytest.mark.slow
def test_a_spark_task_that_is_tried_again_repeats_nothing(setup: Setup, tmp_path: Path) -> None:
    """Three Python workers die in open transactions; Spark tries their tasks again, and the query goes on."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path, master="local[2,4]") as drivers:
        driver = drivers.add(**before("Commit", 2, action="SIGKILL", times=3)).started()
        numbers.wait()
        assert sum(line.startswith("point: ") for line in driver.lines) == 3
        assert not any(line.startswith("stopped") for line in driver.lines), "the query was not to end"
        for _ in range(5):
            numbers.send(100)
            driver.kill_worker()
            numbers.wait()
        driver.stop()
    numbers.check()


@pytest.mark.slow
def test_a_query_that_ends_for_a_dead_worker_is_started_again(setup: Setup, tmp_path: Path) -> None:
    """Without tries of Spark's own each death ends the query; the driver lives, and enters every slot again."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path) as drivers:
        driver = drivers.add(**before("Commit", 2, action="SIGKILL", times=2)).started()
        numbers.wait()
        assert sum(line.startswith("point: ") for line in driver.lines) == 2
        numbers.send(50)
        numbers.wait()
        until(lambda: not hidden(stable(setup)), "readers wait for a dead transaction", 5)
        driver.stop()
    numbers.check()


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, Any]:
    """Settings of drivers whose executors are processes; they write below the test's directory."""
    home = tmp_path / "spark-home"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return {"master": "local-cluster[2,1,1024]", "environment": {"SPARK_HOME": str(home)}}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_executor_that_dies_repeats_and_hides_nothing(setup: Setup, tmp_path: Path, cluster: dict[str, Any]) -> None:
    """SIGKILL of one whose slot is in a transaction, then of whichever, four times."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path, **cluster) as drivers:
        driver = drivers.add(**before("Commit", 2)).started()
        paused = driver.reached()
        driver.kill_executor_of(paused)
        numbers.wait()
        for _ in range(4):
            numbers.send(100)
            driver.kill_executor()
            numbers.wait()
        until(lambda: not hidden(stable(setup)), "readers wait for a dead transaction", 5)
        driver.stop()
    numbers.check()


@pytest.fixture
def two_hosts(tmp_path: Path, cluster: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Settings of drivers on a cluster of two hosts, for Spark speculates on another host only."""
    environment = {**os.environ, **cluster["environment"]}
    with standalone(tmp_path, "127.0.0.2", "127.0.0.3", environment=environment) as found:
        yield {**cluster, "master": found.address}


SPECULATION = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.task.reaper.enabled": "false",
}
"""Spark runs again what is slower than others, at once."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_speculation_doubles_nothing(setup: Setup, tmp_path: Path, two_hosts: dict[str, Any]) -> None:
    """A slot stands still in its transaction; Spark runs it a second time beside it, and then it wakes up."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path, conf=SPECULATION, **two_hosts) as drivers:
        driver = drivers.add(**before("Commit", 2)).started()
        slow = driver.reached()
        numbers.wait()
        assert sum(line.startswith("point: ") for line in driver.lines) == 1
        if driver.lives(slow):  # until Spark ends it, because the other one has succeeded
            driver.wake(slow)
        numbers.send(100)
        numbers.wait()
        assert not any(line.startswith("stopped") for line in driver.lines), "the query was not to end"
        driver.stop()
    numbers.check()


# ---- the cluster


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_restarts_in_mid_batch_repeats_and_loses_nothing(
    kafka_fault_cluster: FaultClusters, tmp_path: Path
) -> None:
    """SIGKILL while one slot is in its transaction and the others have delivered; then more messages."""
    broker = kafka_fault_cluster()
    [node] = broker.nodes
    setup = prepared(Setup(broker.bootstrap, "restarted"))
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path) as drivers:
        driver = drivers.add(**before("Commit", 2)).started()
        slot = driver.reached()
        # No other transaction is under way: Kafka may forget one that was prepared (see test_broker_faults).
        until(lambda: numbers.delivered() == 150, "the other slots have delivered", STARTED_S)
        node.kill()
        node.start()
        until(lambda: answered(setup), "each partition has its leader again")
        driver.wake(slot)
        numbers.wait()
        numbers.send(100)
        numbers.wait()
        driver.stop()
    numbers.check()


def answered(setup: Setup) -> bool:
    """Whether all partitions can be asked for their ends."""
    try:
        return bool(stable(setup))
    except KafkaException:
        return False


@pytest.mark.slow
def test_a_checkpoint_that_was_deleted_is_not_missed(setup: Setup, tmp_path: Path) -> None:
    """The record is the truth: with no checkpoint, and with one that is as old as the first driver."""
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path, limit=100) as drivers:
        for checkpoint in ("first", "none", "first"):
            numbers.send(200)
            driver = drivers.add(checkpoint=checkpoint, **before("Commit", 2))
            driver.reached()
            driver.kill_all()
        driver = drivers.add(checkpoint="none").started()
        numbers.wait()
        driver.stop()
        shutil.rmtree(tmp_path / "none")
        numbers.send(100)
        driver = drivers.add(checkpoint="none").started()
        numbers.wait()
        driver.stop()
    numbers.check()


@pytest.mark.slow
def test_partitions_that_are_added_wait_for_the_plan(setup: Setup, tmp_path: Path) -> None:
    """A driver at work does not mind; the next one names the command, and after that all are delivered."""
    numbers = Numbers(setup)
    numbers.send(100)
    with Drivers(setup, tmp_path) as drivers:
        driver = drivers.add().started()
        numbers.wait()
        grow(setup.bootstrap, setup.source, PARTITIONS + 2)
        numbers.send(100)
        numbers.wait()
        driver.stop()

        numbers.widen(PARTITIONS + 2)
        numbers.send(120)
        refused = drivers.add()
        assert "cues-kafka plan MODULE:GRAPH --apply" in refused.expect("TaskStopped", STARTED_S)
        assert refused.dead() == 3
        broker = open_broker(Kafka(setup.bootstrap))
        apply_plan(plan(graph(setup.name), broker.facts(topics_to_ask(graph(setup.name)))), broker)
        broker.close()
        driver = drivers.add().started()
        numbers.wait()
        driver.kill_all()
        numbers.send(60)
        driver = drivers.add().started()
        numbers.wait()
        driver.stop()
    numbers.check()


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Add partitions, with a plain client, as the owner of the topic does."""
    from confluent_kafka.cimpl import NewPartitions

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()
    until(lambda: len(admin.list_topics(topic).topics[topic].partitions) == partitions, "they are there")


@pytest.mark.slow
def test_an_input_that_was_trimmed_is_refused_and_the_lost_range_named(setup: Setup, tmp_path: Path) -> None:
    """Nothing is written for it; then the loss is accepted, and what is left is delivered once."""
    numbers = Numbers(setup)
    numbers.send(100)
    with Drivers(setup, tmp_path) as drivers:
        driver = drivers.add().started()
        numbers.wait()
        driver.stop()
        numbers.send(100)
        trim(setup.bootstrap, setup.source, 40, partition=1)
        records = [len(partition) for partition in backing(setup.bootstrap, setup.backing)]
        refused = drivers.add()
        said = refused.expect("TaskStopped", STARTED_S)
        assert "work/1" in said
        assert f"offsets [25, 40) of {setup.source}/1 are gone" in said
        assert "accept-loss" in said
        assert refused.dead() == 3
        assert [len(partition) for partition in backing(setup.bootstrap, setup.backing)] == records
        broker = open_broker(Kafka(setup.bootstrap))
        tool = Maintenance(graph(setup.name), broker, "work", who="test")
        tool.carry_out(accept_loss(tool))
        broker.close()
        driver = drivers.add().started()
        until(lambda: numbers.delivered() == 185, "all that is left is delivered", STARTED_S)
        driver.stop()
    found = committed_all(setup.bootstrap, [*(f"{setup.name}.{sink}" for sink in SINKS), setup.errors])
    seen = outcomes([message for messages in found.values() for message in messages])
    lost = range(25, 40)
    wanted = {(n % PARTITIONS, n // PARTITIONS) for n in range(200) if n % 10 != NIL}
    assert {place[1:]: count for place, count in seen.items()} == {
        place: 1 for place in wanted if place[0] != 1 or place[1] not in lost
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shared", [True, False], ids=["one checkpoint", "two checkpoints"])
def test_two_drivers_of_one_graph_double_nothing(setup: Setup, tmp_path: Path, shared: bool) -> None:
    """Both at work on everything at once, for a while; then one alone."""
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path, limit=60, policy={"max_messages": 10}) as drivers, Load(numbers) as load:
        one = drivers.add().started()
        two = drivers.add(checkpoint="checkpoint" if shared else "other").started()
        alone = numbers.count
        until(lambda: numbers.delivered() > alone + 200 and len(writers(setup)) == 3, "both write, and go on", 240)
        load.finish()
        numbers.wait(180)
        two.kill_all()
        numbers.send(100)
        numbers.wait(180)
        one.kill_all()
    numbers.check()


def writers(setup: Setup) -> set[str]:
    """Who wrote records so far: the test, to prepare, and drivers."""
    return {r["writer"]["name"] for partition in backing(setup.bootstrap, setup.backing) for r in partition}


# ---- batches and messages


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_batches_with_empty_partitions_are_delivered_with_and_without_adaptive_execution(
    setup: Setup, tmp_path: Path, adaptive: str
) -> None:
    """Three of four partitions have nothing, or only what was aborted; a kill in between."""
    numbers = Numbers(setup, partitions=1)
    conf = {
        "spark.sql.adaptive.enabled": adaptive,
        "spark.sql.adaptive.streaming.stateless.enabled": adaptive,
        "spark.sql.shuffle.partitions": "3",
    }
    with Drivers(setup, tmp_path, conf=conf) as drivers:
        numbers.send(60)
        abort(setup, [1, 2])
        killed = drivers.add(**before("Commit", 2))
        killed.reached()
        killed.kill_all()
        driver = drivers.add().started()
        numbers.wait()
        abort(setup, [0, 3])
        numbers.send(60)
        abort(setup, [1])
        numbers.wait()
        driver.stop()
    numbers.check()


def abort(setup: Setup, partitions: Sequence[int]) -> None:
    """A message and an abort marker in each of these."""
    producer = Producer({"bootstrap.servers": setup.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(setup.source, b"-1", partition=partition)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


@pytest.mark.slow
def test_a_message_that_cannot_be_read_becomes_one_error_message(setup: Setup, tmp_path: Path) -> None:
    """A poison row; a kill while it is on its way."""
    numbers = Numbers(setup)
    numbers.send(40)
    setup.send(Record(b"{", b"k1", 1))
    numbers.send(40)
    with Drivers(setup, tmp_path) as drivers:
        killed = drivers.add(**before("Commit", 2, partition=1))
        killed.reached()
        killed.kill_all()
        driver = drivers.add().started()
        until(lambda: numbers.delivered() == 81, "all are delivered", STARTED_S)
        driver.stop()
    numbers.check(decode=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_message_that_kills_its_process_is_quarantined_and_the_rest_proceeds(setup: Setup, tmp_path: Path) -> None:
    """Two deaths on the batch, then one step at a time, and an error message after the stated starts (Q1 to Q3)."""
    numbers = Numbers(setup)
    numbers.send(40)
    setup.send(Record(str(DEADLY).encode(), b"deadly", 2))
    numbers.send(40)
    with Drivers(setup, tmp_path, {"quarantine_after": 2}, master="local[2,4]") as drivers:
        driver = drivers.add().started()
        until(lambda: numbers.delivered() == 81, "all are delivered", 180)
        numbers.send(40)
        until(lambda: numbers.delivered() == 121, "it goes on", 120)
        driver.stop()
    numbers.check(quarantine=1)
    kinds = [r for partition in backing(setup.bootstrap, setup.backing) for r in partition if r["kind"] == "Snapshot"]
    deaths = sum(r["starts"] > 0 for r in kinds)
    assert 3 <= deaths <= 6, [(r["kind"], r["starts"], r["steps"]) for r in kinds]


@pytest.mark.slow
def test_a_first_start_at_the_latest_message_means_one_moment(kafka: KafkaFixture, tmp_path: Path) -> None:
    """D6: a crash before and in batch 0, with messages between; what was there before is not delivered, all else is."""
    setup = Setup(kafka.bootstrap, kafka.unique("g"))
    broker = open_broker(Kafka(setup.bootstrap))
    prepare(graph(setup.name), broker)
    broker.close()
    older = [Record(b"-1", None, p) for p in range(PARTITIONS)]
    setup.send(*older, transaction=True)
    numbers = Numbers(setup)
    with Drivers(setup, tmp_path, {"start": "latest"}) as drivers:
        entering = drivers.add(**after("Commit", entering=True))
        entering.reached()
        entering.kill_all()

        in_batch = drivers.add(**before("Init")).started()
        numbers.send(80)
        in_batch.reached()
        in_batch.kill_all()
        numbers.send(40)
        driver = drivers.add().started()
        numbers.wait()
        driver.stop()
    numbers.check()


@pytest.mark.slow
def test_a_driver_that_is_stopped_in_mid_batch_ends_the_batch_and_counts_no_death(setup: Setup, tmp_path: Path) -> None:
    """Leaving in order is no death (Q1), and leaves no transaction open."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path) as drivers:
        driver = drivers.add(**before("Commit", 2))
        slot = driver.reached()
        driver.ask("stop")
        driver.wake(slot)
        assert driver.dead() == 0
        assert not hidden(stable(setup))
        assert numbers.delivered() == 200
        numbers.send(40)
        driver = drivers.add().started()
        numbers.wait()
        driver.stop()
    numbers.check()
    assert {r["starts"] for partition in backing(setup.bootstrap, setup.backing) for r in partition} == {0}


@pytest.mark.slow
def test_a_batch_that_is_cut_off_hides_nothing_and_counts_no_death(setup: Setup, tmp_path: Path) -> None:
    """A stop waits for it only for a while; readers need not wait for its transaction, nor is a message blamed."""
    numbers = Numbers(setup)
    numbers.send(200)
    with Drivers(setup, tmp_path) as drivers:
        driver = drivers.add(**before("Commit", 2))
        driver.reached()
        assert hidden(stable(setup))
        driver.stop()
        assert not hidden(stable(setup))
        driver = drivers.add().started()
        numbers.wait()
        driver.stop()
    numbers.check()
    assert {r["starts"] for partition in backing(setup.bootstrap, setup.backing) for r in partition} == {0}
