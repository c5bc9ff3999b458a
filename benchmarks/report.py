"""Sections of the report, as Markdown: printed at once, and kept in docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"

INTRO = """# Benchmarks

With this page you can see what the framework costs, beside a transactional loop written by hand with the same client.
`make bench` measures it again and writes this page. `make bench ARGS="--only latency"` renews one section,
`ARGS="--bridge artemis-in"` one row of *Bridges*, and `ARGS=--quick` tries the programs and writes nothing. Every
figure comes from a run of [benchmarks/run.py](../benchmarks/run.py), on a real broker on the same machine. Absolute
figures belong to that machine; the last line of each section names its processor. Ratios are of runs that alternated
within minutes, so they hold elsewhere, too.

The other side is [benchmarks/hand.py](../benchmarks/hand.py): `consume(10_000)`, one transaction for what came,
delivery reports counted, positions sent with the group's metadata, lz4, the same function and codec. It has no
snapshots, no recovery, no error messages and no provenance header; it ends at the first error. The client's waits are
as short as ours: with its default `fetch.queue.backoff.ms`, 1 s, that loop stays at 120,000 messages/s.
"""


@dataclass(slots=True)
class Section:
    """
    One program's results.

    Attributes:
        title: heading.
        how: what was measured, and between which two moments.
        head: of the table's columns.
        rows: its cells.
        load: load average before the start.
    """

    title: str
    how: str
    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    after: str = ""

    def __post_init__(self) -> None:
        assert self.title in TITLES, f"give {self.title!r} its place in TITLES"  # before minutes of measuring

    def text(self) -> str:
        """The section as Markdown."""
        lines = table_of([self.head, *self.rows])
        day = time.strftime("%Y-%m-%d %H:%M")
        parts = [f"## {self.title}", self.how, "\n".join(lines), *([self.after] if self.after else [])]
        return "\n\n".join([*parts, f"*{day}; {processor()}; load average before the start {self.load:.2f}.*"]) + "\n"


def table_of(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, whose first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def holds(yes: bool) -> str:
    """The verdict on a target."""
    return "yes" if yes else "**no**"


def processor() -> str:
    """The model of this machine's processor."""
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        return found[1].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    """The machine and the versions, without the processor's model: sections of several machines stand on one page."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {_version(name)}" for name in ("cues-kafka", "confluent-kafka"))
    shared = "the broker, the load and both sides share it"
    return (
        f"Machine: {os.cpu_count()} processors, {memory:.0f} GiB, {platform.system()}; {shared}.\n"
        f"Python {platform.python_version()}, {packages}, Apache Kafka (one node, a child of the run).\n"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def save(sections: Sequence[Section]) -> None:
    """Replace these sections of the page."""
    kept: dict[str, str] = {}
    if PAGE.exists():
        for part in re.split(r"^(?=## )", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            kept[part.splitlines()[0][3:]] = part.strip() + "\n"
    kept |= {section.title: section.text() for section in sections}
    order = sorted(kept, key=TITLES.index)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([INTRO, machine(), *(kept[title] for title in order)]), "utf-8")


def renew(section: Section, note: str) -> None:
    """
    Replace these rows in the table of a section that the page has, and say below it when they were measured.

    Args:
        section: with the new rows only; the first cell names a row.
        note: how, in a few words.
    """
    page = PAGE.read_text("utf-8")
    began = page.index(f"## {section.title}\n")
    ended = page.find("\n## ", began)
    part = page[began:] if ended < 0 else page[began:ended]
    table = [line for line in part.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if not line.startswith("|--")]
    new = {row[0]: list(row) for row in section.rows}
    assert new.keys() <= {row[0] for row in rows}, "the page has no such row: measure the whole section"
    part = part.replace("\n".join(table), "\n".join(table_of([new.get(row[0], row) for row in rows])))
    for name in new:
        said = f"- {name}: {time.strftime('%Y-%m-%d %H:%M')}, {note}; load average before the start {section.load:.2f}."
        kept = [line for line in part.splitlines() if not line.startswith(f"- {name}: 20")]
        kept.insert(max(at for at, line in enumerate(kept) if line.startswith("*20")), f"{said}\n")
        part = "\n".join(kept) + "\n"
    part = re.sub(r"(\n- .*\.)\n\n(?=- )", r"\1\n", part)
    behind = "" if ended < 0 else "\n" + page[ended:].lstrip("\n")
    PAGE.write_text(page[:began] + part + behind, "utf-8")


TITLES = (
    "Throughput",
    "Metrics",
    "Spans",
    "Status",
    "Strategies",
    "State",
    "Databases",
    "Tables of Delta Lake",
    "Bridges",
    "Avro",
    "Columns for Spark",
    "Columns for functions",
    "Latency",
    "Recovery",
    "Memory",
    "Growth",
    "Start",
    "Peers",
    "Peers, killed",
    "Peers, failing",
    "Spark",
    "Spark, staged",
    "Spark, start",
)
