"""A picture of the delays by the weather of the hour."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Scale:
    """
    One measure of the weather, in steps.

    Attributes:
        name: name of the column.
        label: the label in the picture.
        steps: the begin of each step; lower values belong to the first one.
    """

    name: str
    label: str
    steps: tuple[float, ...]


SCALES = (
    Scale("wind_speed", "wind, miles per hour", (0, 5, 10, 15, 20, 25, 30)),
    Scale("precip", "precipitation, inches in the hour", (0, 0.01, 0.05, 0.1, 0.2, 0.4)),
    Scale("visib", "visibility, miles", (0, 1, 2, 4, 6, 8, 10)),
)


def means(hours: Iterable[Mapping[str, Any]], scale: Scale) -> list[tuple[float, float, int]]:
    """For each step with flights: its begin, the mean delay of its flights in minutes, and their number."""
    sums: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for hour in hours:
        if (value := hour[scale.name]) is not None:
            step = max(0, bisect_right(scale.steps, value) - 1)
            flights, delay = sums[step]
            sums[step] = flights + hour["flights"], delay + hour["delay"]
    return [(scale.steps[step], delay / flights, flights) for step, (flights, delay) in sorted(sums.items())]


def draw(hours: list[dict[str, Any]], file: Path) -> None:
    """
    Draw the picture into a file.

    Raises:
        ImportError: matplotlib is not installed; the extra `demo` has it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - the demo does not fail without it
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, scale in zip(figure.subplots(1, len(SCALES), sharey=True), SCALES, strict=True):
        bars = means(hours, scale)
        labels = [f"{start:g}+" for start, _, _ in bars]
        drawn = axes.bar(labels, [mean for _, mean, _ in bars], color="#4477aa")
        axes.bar_label(drawn, [f"{flights:,}" for _, _, flights in bars], fontsize=7, color="#555555", padding=2)
        axes.set_xlabel(scale.label)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("mean departure delay, minutes")
    flights = sum(hour["flights"] for hour in hours)
    figure.suptitle(f"Delay by the weather of the hour: {flights:,} flights from New York in {len(hours):,} hours")
    figure.savefig(file, dpi=110)
