"""A process killed and a process added: springtide beside torchrun's elastic mode, torchft, Ray Train and HF Trainer.

    python -m benchmarks.elasticity [--peers springtide,hosts,torchrun,torchft,ray,hf] [--patience S]

Results: docs/elasticity.md.

One script per system, as its own examples write it (`benchmarks/peers`): two processes, 150 steps of 0.2 s, a snapshot
every 10 steps. `hosts` is springtide on two nodes of a Ray cluster, as `ray` is Ray Train; both lose a whole node. A
process is killed after step 25 and training goes on with one; after step 45 a process is added. The final weights are
compared with those of the same script left alone. Peers are installed into environments of their own under build/peers;
one that cannot be installed or run is named, and the rest runs.
"""

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import psutil
import torch
from experiments.codes import ROOT, reach_checkout
from rich.console import Console
from rich.table import Table
from tests.cluster.ray_clusters import Raylets

from benchmarks.peers.workload import SAMPLES, SAVE_EVERY
from springtide.training.settings import Settings
from springtide.verification.cluster_host import ClusterHost
from springtide.verification.scripted_jobs import Host, ScriptedJob, ScriptedRun

SCRIPTS = Path(__file__).parent / "peers"
ENVIRONMENTS = ROOT / "build" / "peers"
PACKAGES: dict[str, tuple[str, ...]] = {
    "springtide": (),
    "hosts": (),
    "torchrun": (),
    "torchft": ("torchft-nightly==2026.10.26",),
    "ray": ("ray[train]==2.60.0",),
    "hf": ("transformers==5.22.2", "accelerate==1.15.0"),
}
KILL_AFTER, ADD_AFTER = 25, 45
#: How long each part of a run may take: to the kill, to the addition, to its end.
PATIENCE_S = 420.0
TURN_S = 0.05
#: Lines of a script that are the benchmark's and not the user's.
NOT_COUNTED = ("record(", "save_weights(", '"""', "from benchmarks.peers")


class PeerError(Exception):
    """A peer could not be installed or did not come to its end."""


# Environments.


def make_environment(name: str) -> Path:
    """The interpreter of a peer: what is installed here, and its own packages before that."""
    if not PACKAGES[name]:
        return Path(sys.executable)
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        inside = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        (inside / "base.pth").write_text(sysconfig.get_path("purelib") + "\n")
        command: list[Any] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            ROOT / "constraints.txt",
            *PACKAGES[name],
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise PeerError(f"{', '.join(PACKAGES[name])} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        (folder / ".installed").touch()
    return python


# What happened, by the records of the processes.


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step that a process has completed."""

    process: str
    step: int
    samples: tuple[int, ...]
    at_s: float


def read_records(folder: Path) -> list[StepRecord]:
    """All records, in the order of their times."""
    found = []
    for file in folder.glob("steps-*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                plain = json.loads(line)
                found.append(StepRecord(file.stem, plain["step"], tuple(plain["samples"]), plain["at_s"]))
    return sorted(found, key=lambda one: one.at_s)


def find_undone(records: Sequence[StepRecord]) -> set[int]:
    """Places of the records that do not count: a process that started after theirs had ended took the steps again."""
    starts: dict[str, StepRecord] = {}
    ends: dict[str, float] = {}
    for one in records:
        starts.setdefault(one.process, one)
        ends[one.process] = one.at_s
    return {
        place
        for place, one in enumerate(records)
        if any(start.at_s > ends[one.process] and start.step <= one.step for start in starts.values())
    }


def find_pause(records: Sequence[StepRecord], from_s: float, to_s: float) -> float:
    """The longest time without a step further than all before it, from a disturbance on."""
    moments, furthest = [from_s], 0
    for one in records:
        if one.step > furthest:
            furthest = one.step
            if from_s < one.at_s <= to_s:
                moments.append(one.at_s)
    return max((after - before for before, after in pairwise(moments)), default=0.0)


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What a disturbed run did."""

    kill_pause_s: float
    add_pause_s: float
    lost_steps: int
    seen_twice: int
    never_seen: int
    deviation: float
    is_equal: bool


def check_disturbed(records: Sequence[StepRecord], killed_s: float, added_s: float) -> None:
    """Refuse a run in which the kill or the addition did not take place."""
    spans: dict[str, tuple[float, float]] = {}
    for one in records:
        spans[one.process] = spans.get(one.process, (one.at_s, 0.0))[0], one.at_s
    if not any(first < killed_s and last < killed_s + 1.0 for first, last in spans.values()):
        raise PeerError("the kill ended no process that trained")
    if not any(first > added_s for first, _ in spans.values()):
        raise PeerError("no process that was added took a step")


def judge(folder: Path, still: Path, killed_s: float, added_s: float) -> Disturbed:
    """What a disturbed run did, compared with the one left alone."""
    records = read_records(folder)
    check_disturbed(records, killed_s, added_s)
    undone = find_undone(records)
    counts = Counter(number for place, one in enumerate(records) if place not in undone for number in one.samples)
    here, there = torch.load(folder / "weights.pt"), torch.load(still / "weights.pt")
    largest = max(float(one.abs().max()) for one in there)
    off = max(float((one - other).abs().max()) for one, other in zip(here, there, strict=True))
    return Disturbed(
        kill_pause_s=find_pause(records, killed_s, added_s),
        add_pause_s=find_pause(records, added_s, records[-1].at_s),
        lost_steps=len({records[place].step for place in undone}),
        seen_twice=sum(count - 1 for count in counts.values()),
        never_seen=SAMPLES - len(counts),
        deviation=off / largest,
        is_equal=all(torch.equal(one, other) for one, other in zip(here, there, strict=True)),
    )


def count_changed_lines(name: str) -> int:
    """Lines of a script that are not in the one for a single process."""
    plain = Counter(list_lines("plain"))
    return sum((Counter(list_lines(name)) - plain).values())


def list_lines(name: str) -> list[str]:
    """The lines of a script that a user writes."""
    script = "springtide" if name == "hosts" else name
    lines = (SCRIPTS / f"{script}_train.py").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not any(word in line for word in NOT_COUNTED)]


# The systems.


class System(Protocol):
    """A training under way."""

    def kill(self) -> None:
        """Kill a process; training goes on with the other."""

    def add(self) -> None:
        """Add a process."""

    def turn(self) -> bool:
        """Move on for a moment; whether training has ended."""

    def close(self) -> None:
        """End what is left."""


def find_variables(folder: Path) -> dict[str, str]:
    """The environment of every script."""
    return {**reach_checkout(), "ELASTICITY_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}


class SpringtideSystem:
    """Our own executor's processes, as `verify` runs them."""

    def __init__(self, python: Path, folder: Path) -> None:
        saved = Settings(checkpoint_dir=folder / "saved", checkpoint_every_steps=SAVE_EVERY, output=folder)
        variables = {name: find_variables(folder)[name] for name in ("PYTHONPATH", "ELASTICITY_FOLDER")}
        job = ScriptedJob(SCRIPTS / "springtide_train.py", (), folder, saved, variables=variables)
        self.host = self.open_host(folder)
        self.run = ScriptedRun(job, self.host, (1, 1))

    def open_host(self, folder: Path) -> Host:
        """Where the processes run: this machine."""
        return Host()

    def kill(self) -> None:
        restarts = self.run.restarts.count
        self.host.kill(self.run, 1)
        self.run.wait_for(lambda: self.run.phase != "running")
        self.run.assigned = replace(self.run.assigned, devices=self.host.name_devices(1), workers=(2,))
        self.run.wait_for_restart(restarts)

    def add(self) -> None:
        self.run.resize((1, 1))

    def turn(self) -> bool:
        self.run.turn()
        if self.run.failure is not None:
            raise PeerError(self.run.failure.reason)
        return self.run.is_over

    def close(self) -> None:
        self.run.close()
        self.host.close()


class HostsSystem(SpringtideSystem):
    """The same on the two nodes of a Ray cluster, as `verify --engine ray` runs them."""

    def open_host(self, folder: Path) -> Host:
        """A process on each node; a kill ends all of a node's."""
        self.raylets = Raylets((1, 1)).__enter__()
        return ClusterHost(self.raylets.address, folder, 1)

    def close(self) -> None:
        super().close()
        self.raylets.__exit__()


class Processes:
    """Processes of a peer, each in a session of its own, with a log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = (folder / "log").open("ab")
        self.alive: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[Any], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start one."""
        process = subprocess.Popen(
            list(map(str, command)),
            env={**find_variables(self.folder), **variables},
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            cwd=self.folder,
            start_new_session=True,
        )
        self.alive.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Kill one and all that it started: launchers put workers into sessions of their own."""
        self.alive.remove(process)
        if process.poll() is not None:
            return
        family = psutil.Process(process.pid)
        for one in (*family.children(recursive=True), family):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()

    def turn(self) -> bool:
        """Whether all have ended well."""
        time.sleep(TURN_S)
        codes = [process.poll() for process in self.alive]
        if any(codes):
            tail = (self.folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
            raise PeerError(f"a process ended with code {next(filter(None, codes))}: {' '.join(tail)[:200]}")
        return all(code == 0 for code in codes)

    def close(self) -> None:
        """End what is left."""
        for process in list(self.alive):
            self.stop(process)
        self.log.close()


def find_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(system: "System", port: int) -> None:
    """Move on until somebody serves the port."""

    def is_served() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait(system, is_served)


#: Since torch shares the agents' store, one that is added never hears where to meet (a first agent that stays rank 0
#: does not say it again, 2.13.0), and gives up after a minute. This is torch's own way out.
TORCHRUN_VARIABLES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


class TorchrunSystem(Processes):
    """Two agents of torchrun with a process each, `--nnodes 1:2`."""

    def __init__(self, python: Path, folder: Path) -> None:
        super().__init__(folder)
        port = find_port()
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "elasticity"]
        elastic = ["--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "10", "--local-addr", "127.0.0.1"]
        self.command = [python, "-m", "torch.distributed.run", *elastic, *meeting, SCRIPTS / "torchrun_train.py"]
        self.start(self.command, TORCHRUN_VARIABLES)
        wait_for_port(self, port)  # the first agent serves the meeting point: whoever is killed must not be the one
        self.start(self.command, TORCHRUN_VARIABLES)

    def kill(self) -> None:
        self.stop(self.alive[1])

    def add(self) -> None:
        self.start(self.command, TORCHRUN_VARIABLES)


class HfSystem(Processes):
    """torchrun around Trainer; there is no elastic mode, so its user starts it again with what was saved."""

    def __init__(self, python: Path, folder: Path) -> None:
        super().__init__(folder)
        self.python = python
        self.launch(2)

    def launch(self, processes: int) -> None:
        """Start as many processes."""
        meeting = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(processes)]
        self.start([self.python, "-m", "torch.distributed.run", *meeting, SCRIPTS / "hf_train.py"], {})

    def kill(self) -> None:
        self.stop(self.alive[0])
        self.launch(1)

    def add(self) -> None:
        self.stop(self.alive[0])
        self.launch(2)


class TorchftSystem(Processes):
    """A lighthouse and two replicas of one process each."""

    def __init__(self, python: Path, folder: Path) -> None:
        super().__init__(folder)
        port = find_port()
        options = ["--min_replicas", "1", "--bind", f"127.0.0.1:{port}", "--join_timeout_ms", "2000"]
        self.lighthouse = self.start([python.with_name("torchft_lighthouse"), *options], {})
        self.alive.remove(self.lighthouse)
        self.python, self.address = python, f"http://127.0.0.1:{port}"
        self.launch(0)
        self.launch(1)

    def launch(self, replica: int) -> None:
        """Start a replica."""
        variables = {"REPLICA_GROUP_ID": str(replica), "TORCHFT_LIGHTHOUSE": self.address}
        alone = ["--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "1"]
        self.start([self.python, "-m", "torch.distributed.run", *alone, SCRIPTS / "torchft_train.py"], variables)

    def kill(self) -> None:
        self.stop(self.alive[1])

    def add(self) -> None:
        self.launch(1)

    def close(self) -> None:
        self.alive.append(self.lighthouse)
        super().close()


class RaySystem(Processes):
    """A Ray cluster of two nodes with one CPU each, `num_workers=(1, 2)`."""

    def __init__(self, python: Path, folder: Path) -> None:
        super().__init__(folder)
        command = [python, SCRIPTS / "ray_cluster.py", SCRIPTS / "ray_train.py"]
        self.cluster = self.start(command, {"RAY_TRAIN_V2_ENABLED": "1", "RAY_USAGE_STATS_ENABLED": "0"})

    def say(self, word: str) -> None:
        """Tell the cluster."""
        assert self.cluster.stdin is not None
        self.cluster.stdin.write(word.encode() + b"\n")
        self.cluster.stdin.flush()

    def kill(self) -> None:
        self.say("kill")

    def add(self) -> None:
        self.say("add")

    def turn(self) -> bool:
        if (self.folder / "weights.pt").exists() and self.cluster.stdin is not None and not self.cluster.stdin.closed:
            self.cluster.stdin.close()
        return super().turn()


SYSTEMS: dict[str, Callable[[Path, Path], System]] = {
    "springtide": SpringtideSystem,
    "hosts": HostsSystem,
    "torchrun": TorchrunSystem,
    "torchft": TorchftSystem,
    "ray": RaySystem,
    "hf": HfSystem,
}


def wait(system: System, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Move on until a condition holds, or training has ended; whether the condition holds."""
    until_s = time.monotonic() + patience_s
    while not condition():
        if system.turn():
            return condition()
        if time.monotonic() > until_s:
            raise PeerError(f"it did not get further within {patience_s:g} s")
    return True


def has_passed(folder: Path, step: int) -> bool:
    """Whether a step was completed."""
    records = read_records(folder)
    return bool(records) and max(one.step for one in records) >= step


def run_alone(name: str, python: Path, folder: Path, patience_s: float) -> None:
    """Train to the end without a disturbance."""
    system = SYSTEMS[name](python, folder)
    try:
        wait(system, lambda: False, patience_s)
    finally:
        system.close()


def run_disturbed(name: str, python: Path, folder: Path, patience_s: float) -> tuple[float, float]:
    """Train with a process killed and one added; when that was."""
    system = SYSTEMS[name](python, folder)
    try:
        wait(system, lambda: has_passed(folder, KILL_AFTER), patience_s)
        killed_s = time.time()
        system.kill()
        if not wait(system, lambda: has_passed(folder, ADD_AFTER), patience_s):
            raise PeerError(f"it ended before step {ADD_AFTER}")
        added_s = time.time()
        system.add()
        wait(system, lambda: False, patience_s)
    finally:
        system.close()
    return killed_s, added_s


def measure(name: str, patience_s: float) -> Disturbed:
    """One system, twice: alone, and disturbed; what a failed one printed stays in its folder."""
    python = make_environment(name)
    place = Path(tempfile.mkdtemp(prefix=f"elasticity-{name}-"))
    alone, disturbed = place / "alone", place / "disturbed"
    alone.mkdir()
    disturbed.mkdir()
    began_s = time.time()
    try:
        run_alone(name, python, alone, patience_s)
        print(f"{name}: alone in {time.time() - began_s:.0f} s", flush=True)
        killed_s, added_s = run_disturbed(name, python, disturbed, patience_s)
        found = judge(disturbed, alone, killed_s, added_s)
    except PeerError as error:
        raise PeerError(f"{error} (after {time.time() - began_s:.0f} s; its output is in {place})") from error
    shutil.rmtree(place)
    return found


def main() -> None:
    """Measure all that were asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PACKAGES))
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds for each part of a run")
    given = parser.parse_args()
    heads = ("system", "kill: pause s", "add: pause s", "steps lost", "seen twice", "never seen", "weights", "lines")
    table, missing = Table(*heads), []
    for name in given.peers.split(","):
        try:
            found = measure(name, given.patience)
        except PeerError as error:
            missing.append(f"{name}: {error}")
            continue
        weights = "same bits" if found.is_equal else f"off by {found.deviation:.1e}"
        pauses = [f"{found.kill_pause_s:.1f}", f"{found.add_pause_s:.1f}"]
        counts = [str(found.lost_steps), str(found.seen_twice), str(found.never_seen)]
        table.add_row(name, *pauses, *counts, weights, str(count_changed_lines(name)))
        print(f"{name}: {found}", flush=True)
    Console().print(table)
    for line in missing:
        print(line)


if __name__ == "__main__":
    main()
