"""A graph on a real broker, its workers and its view as processes of their own, and what is done on the page."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from cues_kafka import Kafka, connect
from cues_kafka.cli.loading import load_graph
from cues_kafka.testing.fixtures import KafkaFixture
from tests.browser.devtools import Page
from tests.browser.shown import ready, view
from tests.fault.support import Program

MODULE = """
from pathlib import Path
from typing import Any
from cues_kafka import CommitPolicy, Graph, Json, Processor, Source, Topic

FIXED = {fixed}

def check(order: dict[str, Any]) -> dict[str, Any]:
    if order["n"] < 0 and not FIXED:
        raise ValueError("no order of less than nothing")
    if order["n"] == -17:
        print("the order -17 waits", flush=True)
        Path({gate!r}).read_bytes()
    return order

def pack(order: dict[str, Any]) -> dict[str, Any]:
    if order["n"] == 13 and not FIXED:
        raise RuntimeError("the box 13 is missing")
    return order

graph = Graph(
    {name!r},
    Source("{name}.orders"),
    Processor(check, inputs="{name}.orders", outputs="{name}.checked", errors="{name}.errors",
              commit=CommitPolicy(max_messages=5)),
    Processor(pack, inputs="{name}.checked", outputs="{name}.packed"),
    defaults=Topic(value=Json(), partitions=1),
)
"""


class Live:
    """
    The graph in a file, and its processes. Use it as a context manager.

    Orders below 0 fail as error messages, and 13 stops `pack`, until the fixed code is deployed. The fixed code holds
    the order -17 until `open_gate`.

    Attributes:
        name: of the graph, and prefix of its topics.
        times: what was found on the page, and how many seconds after the page was opened.
    """

    def __init__(self, kafka: KafkaFixture, folder: Path) -> None:
        self.name, self.kafka = kafka.unique("shop"), kafka
        self._file, self._gate = folder / "app.py", folder / "gate"
        self._target = f"{self._file}:graph"
        os.mkfifo(self._gate)  # who reads it waits until it is opened
        self._running: list[Program] = []
        self._began = 0.0
        self.times: list[tuple[str, float]] = []
        self.deploy(fixed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._running:
            if error is not None:
                print(f"--- process {one.process.pid}", *one.lines[-60:], sep="\n")
            one.kill()

    def deploy(self, *, fixed: bool) -> None:
        """Write the code of the graph; workers that are started from now on run it."""
        self._file.write_text(MODULE.format(name=self.name, fixed=fixed, gate=str(self._gate)))

    def open_gate(self) -> None:
        """Let the order -17 go on, and pass from now on."""
        opened = self._gate.with_name("opened")
        opened.touch()
        writer = os.open(self._gate, os.O_RDWR)
        opened.replace(self._gate)  # who comes later reads an empty file, and does not wait
        os.close(writer)

    def worker(self) -> Program:
        """Start a worker process, and wait until it has tasks: behind a kill, when the broker has given the dead up."""
        made = self._command("run")
        made.expect("all tasks ready")
        return made

    def _command(self, word: str) -> Program:
        command = [sys.executable, "-m", "cues_kafka.cli.main", word, self._target, "--bootstrap"]
        env = {**os.environ, "XDG_STATE_HOME": str(self._file.parent)}
        self._running.append(Program([*command, self.kafka.bootstrap], env=env))
        return self._running[-1]

    def open(self, page: Page) -> None:
        """Start the view, and open the address that it prints; the times begin here."""
        [address] = re.findall(r"http://\S+", self._command("ui").expect("token="))
        self._began = time.monotonic()
        page.open(address)
        ready(page)

    def send(self, *numbers: int) -> None:
        """Send orders."""
        with connect(Kafka(self.kafka.bootstrap), load_graph(self._target)) as client:
            client.send_many(f"{self.name}.orders", [{"n": number} for number in numbers])

    def found(self, what: str) -> None:
        """Note the time of a finding."""
        self.times.append((what, time.monotonic() - self._began))


def choose(page: Page, selector: str, value: str) -> None:
    """Choose an option of a list as soon as it is there."""
    page.until(f"[...document.querySelector({json.dumps(selector)}).options].some((one) => one.value === '{value}')")
    page.run(f"document.querySelector({json.dumps(selector)}).value = '{value}'")


def confirm(page: Page, selector: str, button: str) -> str:
    """Press a verb, wait until its question can be confirmed by this button, and press that. Gives what it said."""
    page.click(selector)
    first = "document.querySelector('#dialog p button')"
    page.until(f"document.querySelector('#dialog').open && !{first}.disabled && {first}.textContent === '{button}'")
    said = page.text("#dialog pre")
    page.click("#dialog p button")
    return said


def ended(page: Page, what: str) -> str:
    """Wait until the page says that this job is done. Gives what came of it."""
    page.until(f"document.querySelector('#job-told').textContent.startsWith({json.dumps(f'{what} is done')})")
    return page.text("#job-lines")


def row(page: Page, task: str, *states: str, behind: bool = False) -> None:
    """Wait until the table of tasks, which is open, shows a task in one of these states, and behind or not."""
    cell = f"document.querySelector('[data-task=\"{task}\"]').closest('tr').children[%d].textContent"
    page.until(f"{json.dumps(states)}.includes({cell % 1}) && ({cell % 2} !== '0') === {json.dumps(behind)}")


def message(page: Page, topic: str, text: str) -> None:
    """Look on the page of messages for the only one of a topic with this text, until it is there."""
    view(page, "messages")
    choose(page, "#topic", topic)
    page.run(f"document.querySelector('#message-text').value = {json.dumps(text)}")
    found = "[...document.querySelectorAll('#message-rows td.value')].map((one) => one.textContent)"
    looks = "[...document.querySelectorAll('#messages button')].find((one) => one.textContent === 'Show').click()"
    page.until(f"{found}.length ? {found}.join() === {json.dumps(text)} : ({looks}, false)")
