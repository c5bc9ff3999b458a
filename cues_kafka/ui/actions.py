"""What the browser view changes: one job at a time, on a thread of its own, which goes on when its page is closed.

A verb takes what a page has sent and gives a `JobWork`; the job runs it. So the functions behind the commands do what
is asked, and this file knows nothing of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from cues_kafka.errors import ConfigError, CuesError
from cues_kafka.observe.log import get_logger

log = get_logger("cues_kafka.ui")

State: TypeAlias = Literal["none", "running", "done", "failed"]

END_S: Final = 10.0
"""How long the end of a view waits for its job. A job that waits for tasks ends at once; only a call to a cluster that
does not answer takes longer. It writes requests, in no transaction, so a job that is cut leaves nothing open."""

READ_ONLY: Final = "this view is read-only. Use the command, or start the view with --allow-changes."
"""Why a view that is read-only does nothing."""


class Busy(CuesError):
    """Another job runs."""


class Forbidden(CuesError):
    """The view is read-only."""


class JobEnded(CuesError):
    """The view ends, so what can be cut short is."""


class RunningJob:
    """
    What a work tells while it runs, and whether it should end.

    Attributes:
        ended: set when it should wait no longer.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._step: tuple[str, int, int] = ("", 0, 0)

    def step(self, what: str, *, cuts: bool = True) -> Callable[[int, int], None]:
        """
        Begin a step.

        Args:
            what: it does.
            cuts: whether it has no other way to learn that it should end.

        Returns:
            What is to be told how much is done, and how much there is. It raises `JobEnded` if it cuts a job that
            should end.
        """
        self._step = (what, 0, 0)

        def tell(done: int, total: int) -> None:
            self._step = (what, done, total)
            if cuts and self.ended.is_set():
                raise JobEnded(
                    f"ended while {what}; what was asked for before stays, and the rest can be asked for again"
                )

        return tell

    def say(self, what: str) -> None:
        """Begin a step that has no numbers."""
        self._step = (what, 0, 0)

    @property
    def now(self) -> tuple[str, int, int]:
        """The step, how much of it is done, and how much there is; 0: not known."""
        return self._step


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """
    What a work came to.

    Attributes:
        lines: what the command prints.
        ok: whether all that was asked for is done.
        more: data for the page, such as how many would be replayed.
    """

    lines: Sequence[str]
    ok: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobWork:
    """
    Something to do.

    Attributes:
        what: it in words.
        run: does it.
    """

    what: str
    run: Callable[[RunningJob], JobOutcome]


Verb: TypeAlias = Callable[[Mapping[str, Any], str], JobWork]
"""Takes what a page has sent, and who sent it. Raises ConfigError for what it does not understand."""


@dataclass(frozen=True, slots=True)
class SeenJob:
    """
    A job as pages show it.

    Attributes:
        number: 1 for the first one of this view; 0: there was none.
        what, who: what is done, and who asked.
        state: how it stands.
        step, done, total: what it does just now.
        lines, why, more: see `JobOutcome`; why: why it failed.
        seconds: how long it has run.
    """

    number: int = 0
    what: str = ""
    who: str = ""
    state: State = "none"
    step: str = ""
    done: int = 0
    total: int = 0
    lines: Sequence[str] = ()
    why: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class Actions:
    """
    Does what pages ask for, one job at a time.

    Args:
        verbs: by name.
        refusal: why nothing is changed; empty: things are.
        text: makes commands in errors name the graph and the cluster.

    Attributes:
        refusal: as above.
    """

    def __init__(
        self, verbs: Mapping[str, Verb], *, refusal: str = "", text: Callable[[str], str] = lambda line: line
    ) -> None:
        self.refusal = refusal
        self._verbs, self._text = verbs, text
        self._alone = threading.Lock()
        self._thread: threading.Thread | None = None
        self._job = RunningJob()
        self._seen = SeenJob()
        self._began_s = 0.0
        self._closed = False

    def knows(self, verb: str) -> bool:
        """Whether there is such a verb."""
        return verb in self._verbs

    def begin(self, verb: str, given: Mapping[str, Any], who: str) -> SeenJob:
        """
        Begin a job.

        Args:
            verb: its name.
            given: what the page has sent.
            who: who asks.

        Returns:
            The job, which runs.

        Raises:
            Forbidden: the view is read-only.
            ConfigError: the verb does not understand this.
            Busy: another job runs.
        """
        if self.refusal:
            log.warning("change refused", who=who, verb=verb, why="read-only")
            raise Forbidden(self.refusal)
        work = self._verbs[verb](given, who)
        with self._alone:
            if self._closed:
                raise Busy("the view ends")
            if self._seen.state == "running":
                log.warning("change refused", who=who, what=work.what, why=f"{self._seen.what} still runs")
                raise Busy(
                    f"{self._seen.what} still runs, for {self._seen.who}. Wait for its end, or end its wait, and ask "
                    "again."
                )
            self._job = RunningJob()
            self._seen = SeenJob(self._seen.number + 1, work.what, who, "running")
            self._began_s = time.monotonic()
            # A daemon: one that hangs in a call does not keep the process.
            self._thread = threading.Thread(
                target=self._run, args=(work, self._job, self._seen), name="ui job", daemon=True
            )
            log.info("change begun", who=who, what=work.what, job=self._seen.number)
            self._thread.start()
            return self._seen

    def newest(self) -> SeenJob:
        """The job that runs, or the last one."""
        with self._alone:
            seen, job = self._seen, self._job
        if seen.state != "running":
            return seen
        step, done, total = job.now
        seconds = round(time.monotonic() - self._began_s, 1)
        return SeenJob(seen.number, seen.what, seen.who, "running", step, done, total, seconds=seconds)

    def end_wait(self, who: str, number: int | None = None) -> None:
        """
        Let the running job wait no longer, as Ctrl-C does for the command. What it has asked for stays.

        Args:
            who: who asks.
            number: of the job that is meant: a page may not know yet that it has ended, and that another one runs;
                None: the one that runs.

        Raises:
            Forbidden: the view is read-only.
        """
        if self.refusal:
            raise Forbidden(self.refusal)
        with self._alone:
            seen, job = self._seen, self._job
        if number not in (None, seen.number):
            return
        log.info("wait ended", who=who, what=seen.what)
        job.ended.set()

    def close(self, timeout_s: float = END_S) -> SeenJob | None:
        """
        Take nothing more, and wait for the end of the job, which waits for nothing more itself.

        Args:
            timeout_s: how long; a second call waits for nothing.

        Returns:
            The job that ran, as it is now; None: none ran.
        """
        with self._alone:
            thread, ran = self._thread, self._seen.state == "running"
            timeout_s = 0.0 if self._closed else timeout_s
            self._closed = True
        self._job.ended.set()
        if thread is not None:
            thread.join(timeout_s)
        return self.newest() if ran else None

    def _run(self, work: JobWork, job: RunningJob, begun: SeenJob) -> None:
        state: State = "failed"
        outcome, why = JobOutcome(()), ""
        try:
            outcome = work.run(job)
            state = "done" if outcome.ok else "failed"
        except CuesError as error:
            why = self._text(str(error))
        except Exception as error:  # noqa: BLE001 - a defect, which the page and the log name
            why = f"{type(error).__name__}: {error}"
            log.error("change failed", what=work.what, error=why)
        lines = [self._text(line) for line in outcome.lines]
        seconds = round(time.monotonic() - self._began_s, 1)
        log.info("change ended", who=begun.who, what=work.what, job=begun.number, outcome=state, why=why)
        with self._alone:
            self._seen = SeenJob(
                begun.number, begun.what, begun.who, state,
                lines=lines, why=why, more=outcome.more, seconds=seconds,
            )  # fmt: skip


def last_words(job: SeenJob | None) -> list[str]:
    """What is said at the end of a view of the job that ran then: what was done, and what was not."""
    if job is None:
        return []
    if job.state == "running":
        part = f", {job.done:,} of {job.total:,} done" if job.total else ""
        said = (
            f"{job.what} was cut off in this step: {job.step or 'the first'}{part}. What it has asked for stays, and "
            "tasks do it; the rest was not asked for. `cues-kafka errors list MODULE:GRAPH` shows what is open, and "
            "`cues-kafka status MODULE:GRAPH` what is paused."
        )
        return [said]
    end = "is done" if job.state == "done" else "is not done"
    return [f"{job.what} {end}:", *job.lines, *([job.why] if job.why else [])]


def text_of(given: Mapping[str, Any], name: str) -> str | None:
    """
    A text that a page has sent; None: it has not.

    Raises:
        ConfigError: it is no text.
    """
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name}: takes a text.")
    return value


def flag_of(given: Mapping[str, Any], name: str) -> bool:
    """
    A yes or no that a page has sent; no: it has not.

    Raises:
        ConfigError: it is something else.
    """
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: takes true or false.")
    return value


def number_of(given: Mapping[str, Any], name: str) -> int | None:
    """
    A whole number that a page has sent; None: it has not.

    Raises:
        ConfigError: it is something else.
    """
    value = given.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ConfigError(f"{name}: takes a whole number.")
    return value


def only(given: Mapping[str, Any], *names: str) -> None:
    """
    Refuse what a verb does not know.

    Raises:
        ConfigError: there is something else.
    """
    for name in given:
        if name not in names:
            raise ConfigError(f"{name!r:.80} is not known here. Known: {', '.join(names)}.")
