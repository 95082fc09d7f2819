"""Our own scripts on CPU slots: points at three batches predict an unseen batch on one and two processes.

    python -m benchmarks.throughput_scripts [--seconds 330]

Every layout is run once per round, the unseen ones among the others, so that a slow minute of the machine meets all of
them; of each layout the fastest round counts, since other work only ever adds time, and all run at the highest priority
where the system allows it. Prints predicted against measured, the mean error with the nearest measured layout's beside
it, how much the rounds of one layout differ (the floor of any error), and how much of the machine others used. Rounds
are made for as long as the time lasts, at least one.
"""

import argparse
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic

import psutil
from experiments.gangs import take_cores

import springtide.examples
from springtide.throughput.model.forms import DEFAULT_FORM
from springtide.throughput.predictions import Predictor
from springtide.throughput.probing import Measurement, ProbeTrial, ProfiledScript, run_trial
from springtide.throughput.tables.points import Point, make_layout

EXAMPLES = ("cnn", "resnet")
FITTED = (ProbeTrial(1, 1.0), ProbeTrial(1, 0.5), ProbeTrial(1, 2.0), ProbeTrial(2, 1.0), ProbeTrial(2, 2.0))
UNSEEN = (ProbeTrial(1, 1.5), ProbeTrial(2, 1.5))
STEPS = 30
RUN_S = 6.0
CORES = 2
QUIET = 0.05  # of the machine for others: above it the figures say as much about them
BAR = 0.08


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of one prediction, by our form and by the nearest measured layout."""

    ours: float
    nearest: float


class Watch:
    """How much of the cores other processes use, from the start of the watch on."""

    def __init__(self) -> None:
        self.start_s, self.busy_s, self.own_s = monotonic(), find_busy_s(), find_own_s()

    def others(self) -> float:
        """The share of all cores that went to others."""
        used = find_busy_s() - self.busy_s - (find_own_s() - self.own_s)
        return max(0.0, used / ((monotonic() - self.start_s) * (os.cpu_count() or 1)))


def find_busy_s() -> float:
    """Seconds that the cores were busy since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def find_own_s() -> float:
    """Seconds of CPU of this process and the runs it has ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, kinds))


def measure(subject: ProfiledScript, seconds: float) -> dict[ProbeTrial, list[Measurement]]:
    """Every layout once per round, and no round that would not end in time; the first one is always made."""
    found: dict[ProbeTrial, list[Measurement]] = {trial: [] for trial in (*FITTED, *UNSEEN)}
    start_s, rounds = monotonic(), 0
    while rounds == 0 or (monotonic() - start_s) * (rounds + 1) / rounds < seconds:
        for trial, runs in found.items():
            runs.append(run_trial(subject, trial, RUN_S, STEPS))
        rounds += 1
    return found


def make_point(name: str, trial: ProbeTrial, runs: Sequence[Measurement]) -> Point:
    """The point of a layout: its fastest round."""
    layout = make_layout(name, "cpu", 1, trial.processes, runs[0].facts["local_batch"])
    return Point(layout, min(run.step_s for run in runs))


def judge(name: str, seconds: float) -> list[Errors]:
    """Errors at the unseen batch of one example, on one and two processes; prints them."""
    script = Path(springtide.examples.__file__).parent / name / "train.py"
    found = measure(ProfiledScript(script, (), name, "cpu"), seconds)
    spreads = [max(run.step_s for run in runs) / min(run.step_s for run in runs) - 1 for runs in found.values()]
    noise = f"{median(spreads):.1%} (median), {max(spreads):.1%} (most)"
    print(f"{name}: {len(found[FITTED[0]])} rounds; those of one layout differed by {noise}")
    fitted = [make_point(name, trial, found[trial]) for trial in FITTED]
    return [compare(fitted, make_point(name, trial, found[trial])) for trial in UNSEEN]


def compare(fitted: Sequence[Point], unseen: Point) -> Errors:
    """How far our form and the nearest layout are from a point that neither has seen; prints it."""
    (ours,) = Predictor(fitted).predict([unseen.layout])
    (nearest,) = Predictor(fitted, form="nearest").predict([unseen.layout])
    errors = Errors(abs(ours.step_s / unseen.step_s - 1), abs(nearest.step_s / unseen.step_s - 1))
    inside = "in" if ours.low_s <= unseen.step_s <= ours.high_s else "outside"
    print(
        f"  {unseen.layout.devices} processes, batch {unseen.layout.local_batch:g}: measured {unseen.step_s:.4g} s, "
        f"{DEFAULT_FORM} {ours.step_s:.4g} s ({errors.ours:.1%}, {inside} its interval), "
        f"nearest {nearest.step_s:.4g} s ({errors.nearest:.1%})",
        flush=True,
    )
    return errors


def main() -> None:
    """Measure every example and print the mean errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=330.0, help="time for all runs")
    seconds = parser.parse_args().seconds
    take_cores(frozenset(sorted(os.sched_getaffinity(0))[:CORES]))
    watch = Watch()
    errors = [error for name in EXAMPLES for error in judge(name, seconds / len(EXAMPLES))]
    others = watch.others()
    ours, nearest = (sum(column) / len(errors) for column in zip(*((e.ours, e.nearest) for e in errors), strict=True))
    print(f"mean error {ours:.1%} (bar {BAR:.0%}); nearest {nearest:.1%}")
    remark = "" if others <= QUIET else "; not quiet: measure again when it is"
    print(f"others used {others:.0%} of the machine during {monotonic() - watch.start_s:.0f} s{remark}")


if __name__ == "__main__":
    main()
