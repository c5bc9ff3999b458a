"""What an operator does to a running graph, beside stopping and starting its processes: the tools, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

from cues_kafka.errors import BrokerError, RecoveryError
from cues_kafka.operate.move.base import Maintenance
from cues_kafka.operate.move.strategy import change_strategy
from cues_kafka.task import interpreter
from cues_kafka.task.making.prepare import prepare
from cues_kafka.task.making.specs import Identity
from cues_kafka.testing.tester import VirtualGate
from tests.proof.simulation.graphs import build
from tests.proof.simulation.options import AT_LEAST_ONCE, AT_MOST_ONCE, STRATEGIES, Part, Strategy
from tests.proof.simulation.strands import Killed

if TYPE_CHECKING:
    from tests.proof.simulation.run import Simulation

SESSION_S = 11.0
"""After this time a silent member is out of its group."""

TRANSACTION_S = 61.0
"""After this time the coordinator has ended a transaction that a dead process left open."""

TRIES = 6
"""Runs of a tool that faults may meet; then an operator waits until the cluster is well."""


class Operator:
    """Pauses processors, and changes what the graph declares."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._runs = 0

    def act(self) -> None:
        """Perhaps do something, between two steps of the schedule: nothing stands still then."""
        options, swarm = self._simulation.options, self._simulation.swarm
        if options.hold and swarm.happens("hold", "operator"):
            self._hold()
        if options.change and swarm.happens("change", "operator"):
            self._change()

    def _hold(self) -> None:
        """Pause a processor, or let it go on."""
        held, name = self._simulation.held, self._simulation.random.choice(self._simulation.options.parts).name
        if held.pop(name, None) is None:
            held[name] = "by the operator"

    def _change(self) -> None:
        """W7: stop all workers, declare another strategy, run the tool until it has changed every task."""
        simulation = self._simulation
        part = simulation.random.choice(simulation.options.parts)
        if part.store:
            return  # W8
        others = [s for s in STRATEGIES if s != part.strategy and not (s == AT_MOST_ONCE and part.retries)]
        former, strategy = part.strategy, simulation.random.choice(others)
        self._stop_all()
        if strategy == AT_LEAST_ONCE:
            # A task without a record has nothing to change, so nothing ends the transaction of its dead first start.
            simulation.clock.advance(TRANSACTION_S)
        changed = self._declare(part, strategy)
        simulation.strategies[part.name].add(strategy)
        if not self._carried_out(part.name):
            # Some tasks may be changed already: an old answer hid what another one has announced.
            self._declare(changed, former)
            assert self._carried_out(part.name), f"{part.name} cannot go back to {former}"

    def _stop_all(self) -> None:
        """Stop every process, and wait for two sessions: what is still on its way arrives meanwhile."""
        simulation = self._simulation
        for process in simulation.processes:
            if process.alive:
                process.stop(leave=True)
        while simulation.swarm.late:
            simulation.swarm.arrive()
        simulation.clock.advance(2 * SESSION_S)

    def _declare(self, part: Part, strategy: Strategy) -> Part:
        """Let the graph declare this strategy from now on."""
        simulation = self._simulation
        changed = replace(part, strategy=strategy)
        parts = tuple(changed if one.name == part.name else one for one in simulation.options.parts)
        simulation.options = simulation.options.replace(parts=parts)
        with self._calm():
            simulation.graph = build(simulation.options, simulation.trace)
            simulation.planned, simulation.facts = prepare(simulation.graph, simulation.broker)
        return changed

    def _carried_out(self, name: str) -> bool:
        """Whether the tool has changed all tasks; else one has announced steps, and its strategy must deliver them."""
        for _ in range(TRIES):
            try:
                self._run_tool(name)
                break
            except (BrokerError, RecoveryError, Killed):
                self._simulation.clock.advance(SESSION_S)
        # An old answer may have hidden a record of the former strategy; its task would say so, and name the tool.
        with self._calm():
            return self._run_tool(name)

    def _run_tool(self, name: str) -> bool:
        simulation = self._simulation
        self._runs += 1
        identity = Identity("tool", "operator", f"tool{self._runs}")
        with patch.object(Identity, "of_process", lambda *_: identity):  # the same one in each run of a seed
            tool = Maintenance(
                *(simulation.graph, simulation.broker, name),
                who="operator",
                clock=simulation.clock,
                hook=self._hook,
                session_s=0.0,  # the group was empty for that time already
            )
        try:
            moves = change_strategy(tool)
        except RecoveryError as error:
            if "has announced" in str(error):
                return False
            raise
        # The tool's own gate waits by the machine's clock.
        with patch.object(interpreter, "Gate", lambda: VirtualGate(simulation.clock)):
            tool.carry_out(moves)
        return True

    def _hook(self, moment: str, effect: str) -> None:
        """The tool may be killed, as any process."""
        if self._simulation.swarm.happens("kill", f"tool {moment} {effect}"):
            raise Killed

    @contextmanager
    def _calm(self) -> Iterator[None]:
        """Without faults."""
        swarm = self._simulation.swarm
        on, swarm.on = swarm.on, False
        try:
            yield
        finally:
            swarm.on = on
