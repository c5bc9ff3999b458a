"""Settings of a command's Spark session that the user did not give."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cues_kafka.on_spark.session import SHUFFLES, choose_shuffle_partitions


def session(*, cores: int, given: bool = False) -> Any:
    """One with a number of cores, whose user has set the number of shuffle partitions or not."""
    conf = SimpleNamespace(contains=lambda name: given and name == SHUFFLES)
    chosen: dict[str, str] = {}
    return SimpleNamespace(
        sparkContext=SimpleNamespace(getConf=lambda: conf, defaultParallelism=cores),
        conf=SimpleNamespace(set=chosen.__setitem__),
        chosen=chosen,
    )


@pytest.mark.parametrize(("cores", "slots", "number"), [(2, 4, "4"), (16, 4, "16"), (1000, 4, "200"), (8, 300, "300")])
def test_shuffle_partitions_are_as_many_as_slots_or_cores(cores: int, slots: int, number: str) -> None:
    """Each micro-batch pays for each of them, so 200 on two cores make a small batch ten times slower."""
    one = session(cores=cores)

    assert f"is {number};" in choose_shuffle_partitions(one, slots)
    assert one.chosen == {SHUFFLES: number}


def test_the_users_own_number_of_shuffle_partitions_is_kept() -> None:
    """In spark-defaults.conf, for example."""
    one = session(cores=2, given=True)

    assert choose_shuffle_partitions(one, 4) == ""
    assert one.chosen == {}
