"""A simulation as values that a template draws: a bar per policy, and the devices held over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 1000.0, 200.0  # of the picture, which is stretched to its frame


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One policy in numbers, and the widths of its bars in per cent."""

    number: int
    report: Mapping[str, Any]
    met_width: float
    alone_x: float
    wait_width: float
    line: str


@dataclass(frozen=True, slots=True)
class SimulationView:
    """All that the template draws."""

    document: Mapping[str, Any]
    rows: list[PolicyRow]
    has_deadlines: bool
    hours: float

    @property
    def best(self) -> Mapping[str, Any]:
        """The run that met the most deadlines, or without any the one with the shortest jobs."""
        return max((row.report for row in self.rows), key=self.judge)

    @property
    def equals(self) -> list[str]:
        """The other policies that did as well as the best one."""
        best = self.best
        return [
            row.report["policy"]
            for row in self.rows
            if row.report is not best and self.judge(row.report) == self.judge(best)
        ]

    def judge(self, report: Mapping[str, Any]) -> float:
        """How well a policy did, the more the better: deadlines met, or without any the mean time to the end."""
        return float(report["met"] + report["met_unpromised"]) if self.has_deadlines else -find_wait(report)


def build_simulation(document: Mapping[str, Any]) -> SimulationView:
    """The view of an API's document."""
    runs: Sequence[Mapping[str, Any]] = document["runs"]
    longest = max((find_wait(run) for run in runs), default=1.0) or 1.0
    hours = max((run["hours"][-1] for run in runs if run["hours"]), default=0.0) or 1.0
    rows = [
        PolicyRow(
            number,
            run,
            100.0 * (run["dsr"] or 0.0),
            100.0 * (run["dsr_alone_bound"] or 0.0),
            100.0 * find_wait(run) / longest,
            draw_line(run, hours, document["devices"]),
        )
        for number, run in enumerate(runs)
    ]
    return SimulationView(document, rows, any(run["dsr"] is not None for run in runs), hours)


def find_wait(run: Mapping[str, Any]) -> float:
    """How long a job took on average."""
    return float(run["avg_jct_s"] or 0.0)


def draw_line(run: Mapping[str, Any], hours: float, devices: int) -> str:
    """The devices held as the points of a line."""
    places = zip(run["hours"], run["held"], strict=True)
    return " ".join(f"{WIDTH * at / hours:.1f},{HEIGHT * (1 - held / max(1, devices)):.1f}" for at, held in places)


def write_csv(document: Mapping[str, Any]) -> str:
    """The reports as a table for other programs."""
    import csv
    from io import StringIO

    columns = [name for name in document["runs"][0] if name not in ("hours", "held")]
    text = StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(document["runs"])
    return text.getvalue()
