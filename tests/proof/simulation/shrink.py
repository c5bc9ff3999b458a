"""Running seeds, and making a failing one small: fewer faults, a smaller graph, fewer messages, shorter schedules."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.proof.simulation.check import check, totals
from tests.proof.simulation.options import EXACTLY_ONCE, RATES, Options, Part
from tests.proof.simulation.run import Simulation

ROUNDS = 400
"""Runs that one shrinking may take."""


_OF_THIS_RUN = re.compile(r" at 0x[0-9a-f]+|\nassert .*", re.DOTALL)
"""Addresses, and what pytest adds to an assertion: objects with theirs, cut in their middle."""


@dataclass(frozen=True, slots=True)
class Result:
    """
    What became of one run.

    Attributes:
        options: what was run.
        failure: what was wrong, with the class of the error in front; empty: nothing.
        deliveries: of all tasks.
        called_ahead: how often a task was called while its last commit was under way (P7).
        faults: those that happened, with their numbers.
        digest: of everything that was committed.
    """

    options: Options
    failure: str = ""
    deliveries: int = 0
    called_ahead: int = 0
    faults: tuple[str, ...] = ()
    digest: str = ""

    @property
    def numbers(self) -> list[int]:
        """Of the faults."""
        return [int(text.partition(":")[0]) for text in self.faults]


def attempt(options: Options) -> Result:
    """Run and check; whatever is raised is a failure."""
    with silence():
        simulation = Simulation(options)
        failure = ""
        try:
            simulation.run()
            check(simulation)
        except Exception as error:  # a defect may raise anything, an illegal event for example
            failure = f"{type(error).__name__}: {_OF_THIS_RUN.sub('', str(error))}"
        faults = tuple(simulation.swarm.done)
        deliveries = 0 if failure else totals(simulation).deliveries
        return Result(options, failure, deliveries, simulation.called_ahead, faults, simulation.digest())


def attempt_seed(seed: int) -> Result:
    """The same for the options of a seed; other processes find it by this module's name."""
    return attempt(Options.of_seed(seed))


@contextmanager
def silence() -> Iterator[None]:
    """Without logs: a run has thousands of warnings, one for each fault."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def shrink(failed: Result, *, rounds: int = ROUNDS, tell: Callable[[str], None] = lambda _: None) -> Result:
    """
    The smallest options that still fail, by trying what is smaller until nothing is.

    Args:
        failed: a result with a failure.
        rounds: runs at most.
        tell: is told of each step.
    """
    best, left = failed, rounds
    while left > 0:
        for candidate in _smaller(best):
            left -= 1
            result = attempt(candidate)
            if result.failure:
                tell(f"{len(result.faults)} faults, {candidate.messages} messages: {result.failure[:80]}")
                best = result
                break
            if left <= 0:
                break
        else:
            return best
    return best


def _smaller(best: Result) -> Iterator[Options]:
    """What is tried, the largest steps first. A change of the graph needs another schedule, so some are tried."""
    options = best.options
    for changed in (*_smaller_graphs(options), *_fewer_kinds(options), *_smaller_numbers(options)):
        for schedule in range(3):
            yield changed.replace(schedule=schedule, most=None, skipped=())
    yield from _fewer_faults(best)


def _smaller_graphs(options: Options) -> Iterator[Options]:
    parts = options.parts
    for index in range(len(parts) if len(parts) > 1 else 0):
        rest = tuple(part for part in parts if part is not parts[index])
        there = {*options.sources, *(topic for part in rest for topic in part.outputs)}
        if all(topic in there for part in rest for topic in part.inputs):
            yield options.replace(parts=rest)
    for index, part in enumerate(parts):
        for plain in _plainer(part):
            yield options.replace(parts=(*parts[:index], plain, *parts[index + 1 :]))


def _plainer(part: Part) -> Iterator[Part]:
    plainer = [
        replace(part, nil=0),
        replace(part, fails=0),
        replace(part, retries=0),
        replace(part, batch=False),
        replace(part, rekeys=False),
        replace(part, effects=part.kind == "sink"),
        replace(part, strategy=EXACTLY_ONCE),
    ]
    yield from (one for one in plainer if one != part)


def _fewer_kinds(options: Options) -> Iterator[Options]:
    for rate in RATES:
        if getattr(options, rate):
            yield options.replace(**{rate: 0})


def _smaller_numbers(options: Options) -> Iterator[Options]:
    for name, least in (("messages", 1), ("steps", 20), ("workers", 1), ("partitions", 1), ("poison", 0)):
        value = getattr(options, name)
        for less in sorted({least, value // 4, value // 2, value * 3 // 4}):
            if least <= less < value:
                yield options.replace(**{name: less})
    for name in ("static", "inside"):
        if getattr(options, name):
            yield options.replace(**{name: False})


def _fewer_faults(best: Result) -> Iterator[Options]:
    """All that was decided before a fault that is left out stays as it was."""
    options, numbers = best.options, best.numbers
    for most in sorted({0, len(numbers) // 4, len(numbers) // 2, len(numbers) * 3 // 4, len(numbers) - 1}):
        if 0 <= most < len(numbers):
            yield options.replace(most=most)
    size = len(numbers) // 2
    while size:
        for start in range(0, len(numbers), size):
            yield options.replace(skipped=tuple(sorted({*options.skipped, *numbers[start : start + size]})))
        size //= 2
