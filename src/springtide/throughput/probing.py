"""Measures a real training script: which runs to make, the processes that make them, and the points that come out.

Each run is the script in its own processes (`springtide.cli.profile_worker`), one per device, like torchrun would start
them; this module imports no torch. Warm-up steps are dropped and the median of the rest counts; one run is repeated for
the noise. Time outside the steps (imports, data) is bounded too: a run that does not end is stopped.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from springtide.core.shared_types import Tell
from springtide.errors import JobError, ProfileError
from springtide.throughput.tables.points import Point, make_layout

WORKER = "springtide.cli.profile_worker"
VARIABLE = "SPRINGTIDE_PROFILE"
OUTPUT_VARIABLE = "SPRINGTIDE_OUTPUT"  # `run.output_dir`: what a script leaves there is of no use
NO_TRACKERS = {"SPRINGTIDE_TRACK": "none"}
WARM_UP_STEPS = 3
FEWEST_STEPS = 5
FACTORS = (1.0, 0.5, 2.0)
NOTED = (
    *("gradient_bytes", "parameter_bytes", "flops", "activation_bytes"),
    *("steps_per_epoch", "script_steps", "script_batch", "script_logical_workers"),
)
START_S = 60.0  # for imports and data, on top of a run's share of the time


@dataclass(frozen=True, slots=True)
class ProfiledScript:
    """The script to measure, with its arguments, what to call it and its devices, and the folder it is started in."""

    script: Path
    arguments: tuple[str, ...]
    model: str
    device_type: str
    folder: Path = Path()


@dataclass(frozen=True, slots=True)
class ProbeTrial:
    """One run: so many processes, the script's batch times a factor."""

    processes: int
    factor: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run showed: seconds of each step after the warm-up, and the facts its first process wrote."""

    trial: ProbeTrial
    steps_s: tuple[float, ...]
    facts: Mapping[str, Any]

    @property
    def step_s(self) -> float:
        """The typical step: the median, which a hiccup does not move."""
        return median(self.steps_s)


@dataclass(frozen=True, slots=True)
class Profile:
    """Points of a script, with what was noted on the way: sizes, transport, noise between two equal runs."""

    points: tuple[Point, ...]
    notes: Mapping[str, Any]


def plan_trials(counts: Sequence[int], factors: Sequence[float] = FACTORS) -> list[ProbeTrial]:
    """Every batch on the fewest devices; the script's own and the largest on the others; the first once more."""
    few = [ProbeTrial(counts[0], factor) for factor in factors]
    many = [ProbeTrial(count, factor) for count in counts[1:] for factor in (factors[0], max(factors))]
    return [*few, *many, few[0]]


def profile_script(subject: ProfiledScript, counts: Sequence[int], seconds: float, steps: int, tell: Tell) -> Profile:
    """Measure a script within a bounded time, shared evenly by the runs."""
    if not subject.script.is_file():
        raise JobError(f"script {subject.script} does not exist; give the path of a training script")
    trials = plan_trials(counts)
    measured = []
    for number, trial in enumerate(trials, start=1):
        tell(f"run {number} of {len(trials)}: {trial.processes} processes, batch x {trial.factor:g}")
        measured.append(run_trial(subject, trial, seconds / len(trials), steps))
    return make_profile(subject, measured)


def make_profile(subject: ProfiledScript, measured: Sequence[Measurement]) -> Profile:
    """The points of these runs; on several devices, what exceeds one device at the same batch is synchronisation."""
    alone = {m.facts["local_batch"]: m.step_s for m in measured if m.trial.processes == 1}
    points = []
    for found in measured:
        batch, processes = found.facts["local_batch"], found.trial.processes
        sync_s = None
        if processes == 1:
            sync_s = 0.0
        elif batch in alone:
            sync_s = max(0.0, found.step_s - alone[batch])
        layout = make_layout(subject.model, subject.device_type, 1, processes, batch)
        points.append(Point(layout, found.step_s, sync_s))
    first, again = measured[0], measured[-1]
    notes = {name: first.facts[name] for name in NOTED if name in first.facts}
    notes["worker_batch"] = round(first.facts["local_batch"] / first.trial.factor)
    transports = sorted({str(found.facts["transport"]) for found in measured} - {"none"})
    noise = abs(again.step_s / first.step_s - 1)
    return Profile(tuple(points), notes | {"transport": transports or ["none"], "noise": noise})


def run_trial(
    subject: ProfiledScript, trial: ProbeTrial, seconds: float, steps: int, count: bool = False
) -> Measurement:
    """One run of the script, stopped if it takes a minute longer than it may."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "record.json"
        fewest = WARM_UP_STEPS + FEWEST_STEPS
        orders = {"factor": trial.factor, "steps": steps + WARM_UP_STEPS, "fewest": fewest, "seconds": seconds}
        orders["count"] = count
        processes = list(_start(subject, trial, orders | {"out": str(out)}, Path(folder)))
        try:
            codes = [process.wait(timeout=seconds + START_S) for process in processes]
        except subprocess.TimeoutExpired:
            codes = []
        finally:
            _stop(processes)
        facts = _read_record(subject, out, Path(folder), codes)
    steps_s = facts.pop("steps_s")[WARM_UP_STEPS:] or [0.0] * count
    if len(steps_s) < FEWEST_STEPS and not count:
        raise ProfileError(
            f"{subject.script} took {len(steps_s)} steps after {WARM_UP_STEPS} of warm-up in {seconds:.0f} s; "
            f"at least {FEWEST_STEPS} are needed; give more with --seconds"
        )
    return Measurement(trial, tuple(steps_s), facts)


def _start(
    subject: ProfiledScript, trial: ProbeTrial, orders: Mapping[str, Any], folder: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """The processes of a run, each with torchrun's variables; what they print goes to a file each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for rank in range(trial.processes):
        environ = os.environ | {VARIABLE: json.dumps(orders), "OMP_NUM_THREADS": "1", OUTPUT_VARIABLE: str(folder)}
        environ |= NO_TRACKERS
        if trial.processes > 1:
            environ |= {"RANK": str(rank), "WORLD_SIZE": str(trial.processes), "LOCAL_RANK": str(rank)}
            environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with (folder / f"log-{rank}").open("wb") as log:
            command = [sys.executable, "-m", WORKER, str(subject.script.resolve()), *subject.arguments]
            yield subprocess.Popen(command, env=environ, stdout=log, stderr=log, cwd=subject.folder)


def _stop(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def _read_record(subject: ProfiledScript, out: Path, folder: Path, codes: Sequence[int]) -> dict[str, Any]:
    if out.is_file():
        record: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return record
    lines = (folder / "log-0").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    ended = f"ended with {codes[0]}" if codes else "did not end in time"
    raise JobError(
        f"{subject.script} {ended} before its first step ({lines[-1] if lines else 'no output'}); "
        f"it must call springtide.init and walk the loader of run.prepare"
    )
