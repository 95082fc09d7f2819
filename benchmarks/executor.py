"""How long a job stands still when the local executor starts, resizes or recovers it, with the plain way beside it.

`python -m benchmarks.executor [--example gpt] [--rounds 3]` runs a shipped example on two CPU slots of an agent of its
own. Plain start: `python train.py` in a fresh interpreter, up to the same point. Plain resize: stop with a checkpoint,
start on the other devices. Takes about two minutes; needs no data.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import springtide.examples
from springtide.executors.local.executor import LocalExecutor
from springtide.executors.protocol import (
    CheckpointPolicy,
    Event,
    Faulted,
    Instruction,
    JobSpec,
    Probe,
    Probed,
    Progressed,
    Resize,
    Resized,
    ScriptInfo,
    Start,
    Started,
    Stop,
    Stopped,
)

EXAMPLES = Path(springtide.examples.__path__[0])
ONE, TWO = ("cpu:0",), ("cpu:0", "cpu:1")
PATIENCE_S = 120.0
#: What the platform promises: an idle device is in use soon after the decision, and an unknown job is soon measured.
BOUNDS_S = {"grow, decision to done": 1.0, "probe, first step to measured": 15.0}


class Bench:
    """One job of an example on an agent of its own."""

    def __init__(self, folder: Path, example: str) -> None:
        self.folder = folder
        self.executor = LocalExecutor(folder / "state", cpu_slots="2")
        self.last = 0
        self.generation = 0
        self.spec = JobSpec(
            argv=("python", "train.py", "--epochs", "100000"),
            folder=str(EXAMPLES / example),
            checkpoint=CheckpointPolicy(str(folder / "checkpoints"), 2.0, 2),
            output_dir=str(folder / "output"),
            log_dir=str(folder / "logs"),
        )

    def send(self, kind: Callable[..., Instruction], **fields: object) -> float:
        """Send an instruction and return when."""
        self.generation += 1
        at_s = time.time()
        self.executor.apply([kind(job="bench", generation=self.generation, key=str(self.generation), **fields)])
        return at_s

    def hear(self, *kinds: type[Event]) -> Event:
        """The next event of these kinds."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            for event in self.executor.wait(self.last, 1.0):
                self.last = event.seq
                if isinstance(event, kinds):
                    return event
        raise SystemExit(f"heard none of {[kind.__name__ for kind in kinds]} in {PATIENCE_S:g} s")

    def start(self) -> float:
        """Seconds from the instruction to the first step about to be taken."""
        at_s = self.send(Start, spec=self.spec, devices=ONE)
        return self.hear(Started).at_s - at_s

    def resize(self, devices: tuple[str, ...]) -> tuple[float, float]:
        """Seconds from the instruction to the change, and of these how long training paused."""
        at_s = self.send(Resize, devices=devices)
        resized = self.hear(Resized)
        assert isinstance(resized, Resized)
        return resized.at_s - at_s, resized.pause_s

    def stop(self) -> float:
        """Seconds from the instruction to free devices, with a checkpoint."""
        at_s = self.send(Stop)
        return self.hear(Stopped).at_s - at_s

    def probe(self) -> float:
        """Seconds that a probe takes at both shares, from the script's word before its first step to its end."""
        scratch = replace(self.spec, checkpoint=CheckpointPolicy(str(self.folder / "scratch"), 300.0))
        self.send(Probe, spec=scratch, devices=TWO)
        began_s = self.hear(ScriptInfo).at_s
        return self.hear(Probed).at_s - began_s

    def kill_worker(self) -> float:
        """Seconds from a worker's kill -9 to training again."""
        (running,) = self.executor.running()
        at_s = time.time()
        os.kill(running.pids[-1], signal.SIGKILL)
        self.hear(Faulted)
        return self.hear(Started).at_s - at_s


def start_plainly(example: str) -> float:
    """Seconds from starting a fresh interpreter to the first step about to be taken."""
    script = "import runpy, sys, springtide.training.run as r; r.Run.announce = lambda run: sys.exit(0); "
    script += "sys.argv = ['train.py']; sys.path[0] = '.'; runpy.run_path('train.py', run_name='__main__')"
    began_s = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", script], cwd=EXAMPLES / example, env=environment, check=True)
    return time.monotonic() - began_s


def measure(bench: Bench, example: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of every kind, round by round."""
    found: dict[str, list[float]] = {}
    bench.start()
    bench.stop()
    for _ in range(rounds):
        note(found, "plain start", start_plainly(example))
        note(found, "start", bench.start())
        bench.hear(Progressed)
        grow_s, pause_s = bench.resize(TWO)
        note(found, "grow, decision to done", grow_s)
        note(found, "grow, training paused", pause_s)
        note(found, "kill -9 of a worker, to training again", bench.kill_worker())
        shrink_s, pause_s = bench.resize(ONE)
        note(found, "shrink, decision to done", shrink_s)
        note(found, "shrink, training paused", pause_s)
        stop_s = bench.stop()
        note(found, "stop with a checkpoint", stop_s)
        note(found, "plain resize: stop, then start", stop_s + bench.start())
        bench.hear(Progressed)
        bench.stop()
        note(found, "probe, first step to measured", bench.probe())
    return found


def note(found: dict[str, list[float]], name: str, seconds: float) -> None:
    """Keep one measurement."""
    found.setdefault(name, []).append(seconds)


def print_table(found: dict[str, list[float]]) -> None:
    """Medians with their bounds, and the two ratios that matter."""
    medians = {name: median(values) for name, values in found.items()}
    for name, seconds in medians.items():
        bound_s = BOUNDS_S.get(name)
        beside = f"   bound {bound_s * 1000:.0f} ms   ratio {seconds / bound_s:.2f}" if bound_s is not None else ""
        print(f"{name:42s} {seconds * 1000:8.0f} ms{beside}")
    started = medians["plain start"] / medians["start"]
    paused = medians["plain resize: stop, then start"] / medians["grow, training paused"]
    print(f"a warm start is {started:.1f} times as fast as a plain one")
    print(f"growing in place stands still {paused:.0f} times shorter than stopping and starting")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--example", default="gpt", choices=["cnn", "gpt", "resnet", "recommender"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.example)
        try:
            found = measure(bench, given.example, given.rounds)
        finally:
            bench.executor.shutdown()
    print_table(found)
    if given.json is not None:
        given.json.write_text(json.dumps({"schema": 1, "example": given.example, "seconds": found}, indent=1))


if __name__ == "__main__":
    main()
