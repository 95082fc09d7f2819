"""Every tuned constant of the policy, and what half as much and half as much again of it does to the deadlines met.

    python -m benchmarks.constants [--data DIR] [--only THRIFT] [--rows 195job] [--record FILE] [--list]

`--list` prints the constants and what they do. Runs take long: those in --record are not made again, so that a run that
was broken off goes on where it ended. Differences are in points of deadlines met against the values in the code.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rich.console import Console

from benchmarks.elasticflow_data import add_data_option, load_trace, require_data
from springtide.core.devices import parse_cluster
from springtide.simulator.batches import mute_solvers
from springtide.simulator.front import simulate

POLICY = "springtide"
FACTORS = (0.5, 1.5)
ROWS = (
    ("195job", "16x8:a100"),
    ("195job", "4x8:a100"),
    ("elasticVpollux_e", "4x4:t4"),
    ("cluster10", "8x8:a100"),
    ("cluster01", "16x8:a100"),
    ("philly_103959", "4x8:a100"),
)
PLANNING, FORECAST = "springtide.policies.planning", "springtide.policies.planning.forecast"


@dataclass(frozen=True, slots=True)
class Constant:
    """A tuned number: where it is, and what it does. `most` is its bound, for shares.

    What is compiled in, or does nothing on clusters of one device type, does not vary here.
    """

    name: str
    module: str
    does: str
    whole: bool = False
    most: float | None = None
    varies: bool = True

    @property
    def value(self) -> float:
        """What it is in the code."""
        return float(getattr(import_module(self.module), self.name))

    def vary(self, factor: float) -> float:
        """Its value times a factor, within its bound and whole where it counts something."""
        value = self.value * factor
        value = max(1.0, float(round(value))) if self.whole else value
        return value if self.most is None else min(value, self.most)


CONSTANTS = (
    Constant("PATIENCE", "springtide.policies.springtide", "pauses that growth must save beyond its own"),
    Constant("FOLLOWED", "springtide.placement.feasibility", "starts to come that are checked on devices", whole=True),
    Constant("THRIFT", f"{PLANNING}.open_answers", "cost of a plan on what is left, in what the job needs alone"),
    Constant("ORDERS", f"{PLANNING}.open_answers", "orders in which all are planned again for a newcomer", whole=True),
    Constant("MAX_SEGMENTS", f"{PLANNING}.columns", "changes of share in one plan (compiled in)", varies=False),
    Constant("HOPE_S", f"{PLANNING}.filling", "seconds a level may miss by and be tried (compiled in)", varies=False),
    Constant("REMEMBERED", FORECAST, "arrivals that the forecast rests on", whole=True),
    Constant("FEW", FORECAST, "arrivals before it says anything", whole=True),
    Constant("CROWDED", FORECAST, "share of the cluster from which a due job is declined for cheaper ones", most=1.0),
    Constant("CALM", FORECAST, "share of the cluster up to which nobody is held back", most=1.0),
    Constant("LITTLE_SLACK", f"{PLANNING}.admission", "slack below which promised jobs go first", varies=False),
    Constant("STARVED_S", f"{PLANNING}.best_effort", "wait after which a best-effort job goes first", varies=False),
    Constant("HALF_LIFE_S", f"{PLANNING}.best_effort", "after which use counts half in fair sharing", varies=False),
    Constant("ASKERS", "springtide.policies.pools.joining", "jobs for which others change pools (mixed)", varies=False),
    Constant("DONORS", "springtide.policies.pools.transfers", "jobs asked to make way for one (mixed)", varies=False),
)


def main() -> None:
    """Print the table of sensitivities, or the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_option(parser)
    parser.add_argument("--only", default="", help="constants whose name contains this")
    parser.add_argument("--rows", default="", help="rows whose 'trace cluster' contains this")
    parser.add_argument("--record", type=Path, help="where finished runs are kept (JSON lines)")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    args = parser.parse_args()
    console = Console(width=160)
    chosen = [constant for constant in CONSTANTS if args.only in constant.name and is_there(constant)]
    if args.list:
        for constant in chosen:
            console.print(f"{constant.name:14} {constant.value:>8g}  {constant.does}", highlight=False)
        return
    rows = [row for row in ROWS if args.rows in " ".join(row)]
    print_table(console, Bench(require_data(args.data), args.record), chosen, rows)


def is_there(constant: Constant) -> bool:
    """Whether the code still has it: one that was replaced by a derivation drops out of the list by itself."""
    try:
        return hasattr(import_module(constant.module), constant.name)
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the data is, and where finished runs are kept."""

    data: Path
    record: Path | None

    def measure(self, row: tuple[str, str], constant: Constant | None, value: float) -> float:
        """Deadlines met on a row with one constant changed."""
        key = json.dumps([*row, constant.name if constant else "", value])
        kept = self._read()
        if key not in kept:
            with replaced(constant, value):
                kept[key] = run(self.data, row)
            if self.record is not None:
                with self.record.open("a") as file:
                    file.write(json.dumps({"key": key, "dsr": kept[key]}) + "\n")
        return kept[key]

    def _read(self) -> dict[str, float]:
        if self.record is None or not self.record.exists():
            return {}
        lines = [json.loads(line) for line in self.record.read_text().splitlines() if line.endswith("}")]
        return {line["key"]: line["dsr"] for line in lines}


@contextmanager
def replaced(constant: Constant | None, value: float) -> Iterator[None]:
    """Another value of a constant in the module that it is read from."""
    if constant is None:
        yield
        return
    module = import_module(constant.module)
    before = getattr(module, constant.name)
    setattr(module, constant.name, type(before)(value))
    try:
        yield
    finally:
        setattr(module, constant.name, before)


def run(data: Path, row: tuple[str, str]) -> float:
    """Deadlines met on a row; a broken promise counts as an error, whatever the constant."""
    trace, cluster = row
    machines = parse_cluster(cluster)
    with mute_solvers():
        report = simulate(load_trace(data, trace, machines), POLICY, machines)
    if report.late_admitted:
        raise SystemExit(f"{trace} on {cluster}: {report.late_admitted} promises were broken; no constant may do that")
    return report.dsr or 0.0


def print_table(console: Console, bench: Bench, constants: Sequence[Constant], rows: Sequence[tuple[str, str]]) -> None:
    """A line per constant and factor: the difference on each row, in points."""
    names = [f"{trace[:9]} {cluster.split(':')[0]}" for trace, cluster in rows]
    layout = "{:14} {:>8} {:>8}" + " {:>15}" * len(rows)
    console.print(layout.format("constant", "is", "tried", *names), style="bold")
    plain = [bench.measure(row, None, 0.0) for row in rows]
    console.print(layout.format("(as it is)", "", "", *[f"{dsr:.3f}" for dsr in plain]), highlight=False)
    for constant in [one for one in constants if one.varies]:
        for factor in FACTORS:
            value = constant.vary(factor)
            found = [bench.measure(row, constant, value) for row in rows]
            points = [f"{100 * (dsr - base):+.1f}" for dsr, base in zip(found, plain, strict=True)]
            console.print(layout.format(constant.name, f"{constant.value:g}", f"{value:g}", *points), highlight=False)


if __name__ == "__main__":
    main()
