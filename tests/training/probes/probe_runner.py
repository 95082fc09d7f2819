"""Runs probes on forked processes: stock DDP by hand on N ranks, ours on 1, 3 and N, and prints a verdict for each.

Ours is run once more, rescaled and killed on the way (`probe_disturbed`): all probes that are not refused, of the short
set a few. `python -m tests.training.probes.probe_runner all|short [NAME ...]`: one JSON line per probe.
"""

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
import torch.distributed as dist
from tests.training.probes.probe_table import LoopProbe
from tests.training.probes.probe_texts import KNOWN, run_text, write_elastic, write_stock

if TYPE_CHECKING:
    from tests.training.probes.probe_disturbed import DisturbedRuns

#: Probes that are judged at the same time.
JUDGES = 2
#: Every process of a run has ended by then, or it hangs.
LONGEST_S = 300.0


#: What a refusal begins with.
REFUSALS = ("JobError", "NondeterminismError")


def run_rank(probe: LoopProbe, stock: bool, rank: int, counts: tuple[int, ...], folder: Path) -> None:
    """One process of a run: leaves its digest, or the sentence it was refused with."""
    more: dict[str, Any] = {}
    with (folder / f"rank{rank}.err").open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    if stock:
        store = dist.FileStore(str(folder / "stock"), probe.workers)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=probe.workers)
    else:
        import springtide
        from springtide.training.group.rosters import make_roster

        more["springtide"] = springtide
        os.environ |= {"SPRINGTIDE_PROCESS": f"p{rank}", "SPRINGTIDE_ROSTER": str(make_roster(counts))}
        if len(counts) > 1:
            os.environ["SPRINGTIDE_STORE"] = (folder / "store").read_text()
    try:
        text = write_stock(probe) if stock else write_elastic(probe)
        (folder / f"rank{rank}").write_text(run_text(probe, text, rank, **more))
        if stock:
            dist.barrier()
    except Exception as error:
        (folder / f"rank{rank}").write_text(f"{type(error).__name__}: {error}")
        sys.excepthook(*sys.exc_info())


class ProbeRun:
    """One run of a probe, from the start of its processes until all have ended."""

    def __init__(self, probe: LoopProbe, stock: bool, counts: tuple[int, ...]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        self.keeper = 0 if stock or len(counts) == 1 else fork_store(folder)
        self.files = [folder / f"rank{rank}" for rank in range(len(counts))]
        self.children = [fork_rank(probe, stock, rank, counts, folder) for rank in range(len(counts))]

    def finish(self) -> list[str]:
        """What every process of the run left."""
        hang = wait_for(self.children)
        if self.keeper:
            os.kill(self.keeper, signal.SIGKILL)
            os.waitpid(self.keeper, 0)
        with self.folder:
            return [file.read_text() if file.exists() else hang or "nothing" for file in self.files]


def fork_rank(probe: LoopProbe, stock: bool, rank: int, counts: tuple[int, ...], folder: Path) -> int:
    """A process of a run."""
    child = os.fork()
    if child == 0:
        try:
            run_rank(probe, stock, rank, counts, folder)
        finally:
            sys.stderr.flush()
            os._exit(0)
    return child


def wait_for(children: list[int]) -> str:
    """Wait for every process of a run, and kill those that hang; whether one did."""
    hang, left = "", list(children)
    end_s = time.monotonic() + LONGEST_S
    while left:
        left = [child for child in left if os.waitpid(child, os.WNOHANG)[0] == 0]
        if left and time.monotonic() > end_s:
            hang = f"HANGS for {LONGEST_S:g} s"
            for child in left:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return hang


def fork_store(folder: Path) -> int:
    """A process that holds the store of a run."""
    keeper = os.fork()
    if keeper == 0:
        from springtide.training.group.groups import host_store

        _store, address = host_store()
        (folder / "store.new").write_text(address)
        (folder / "store.new").rename(folder / "store")
        while True:
            signal.pause()
    while not (folder / "store").exists():
        time.sleep(0.005)
    return keeper


def list_sizes(workers: int) -> list[tuple[int, ...]]:
    """One process, three (or one less than workers), and one per worker."""
    return [(workers,), (2, *(1,) * (workers - 2)), (1,) * workers]


class StockRuns:
    """A process that has imported nothing of ours, and runs the stock scripts beside ours."""

    def __init__(self) -> None:
        self.line, far = multiprocessing.Pipe()
        if os.fork() == 0:
            self.line.close()  # so that the last line is the end of this process too
            with contextlib.suppress(EOFError):
                while True:
                    probe = far.recv()
                    far.send(ProbeRun(probe, True, (1,) * probe.workers).finish()[0])
            os._exit(0)
        far.close()

    def begin(self, probe: LoopProbe) -> None:
        """Start a stock run."""
        self.line.send(probe)

    def finish(self) -> str:
        """What its first rank left."""
        left: str = self.line.recv()
        return left


def judge(probe: LoopProbe, stock: StockRuns, disturbed: "DisturbedRuns | None") -> dict[str, Any]:
    """The verdict on one probe; it is disturbed on the way where there is somebody to do it."""
    sizes = list_sizes(probe.workers)
    if probe.refused:
        counts = next(counts for counts in sizes if len(counts) >= probe.processes)
        return {"name": probe.name, **judge_refusal(probe, ProbeRun(probe, False, counts).finish())}
    if not probe.alone:
        stock.begin(probe)
    runs = {len(counts): ProbeRun(probe, False, counts) for counts in sizes}
    ours = {size: run.finish() for size, run in runs.items()}
    wanted = ours[1][0] if probe.alone else stock.finish()
    bad = {size: [one[:300] for one in left] for size, left in ours.items() if set(left) != {wanted}}
    if bad or len(wanted) != 64:
        return {"name": probe.name, "verdict": f"DIFFERENT: stock {wanted[:300]}, ours {bad}"}
    if disturbed is not None and (wrong := disturbed.find_wrong(probe, wanted)):
        return {"name": probe.name, "verdict": f"DIFFERENT, rescaled and killed: {wrong}"}
    return {"name": probe.name, "verdict": "equal on any size" if probe.alone else "equal"}


def judge_refusal(probe: LoopProbe, said: list[str]) -> dict[str, str]:
    """Whether a run ended on all its processes, and on one with the sentence."""
    told = [one for one in said if probe.refused in one and one.startswith(REFUSALS)]
    if not told or not all(one in (*told, "nothing") or one.startswith("PeerLostError") for one in said):
        return {"verdict": f"NOT REFUSED: {[one[:300] for one in said]}"}
    return {"verdict": "refused", "sentence": told[0].partition(": ")[2]}


def forget_imported() -> None:
    """Have what was imported looked through no more for what is alive: by hundreds of processes, it is half of all."""
    gc.collect()
    gc.freeze()


def judge_all(probes: Sequence[LoopProbe], is_all: bool) -> None:
    """Judge probes one after the other, and print what came of each."""
    stock = StockRuns()
    importlib.import_module("springtide.training.elastic_run")  # once, for all processes of ours
    from tests.training.probes.probe_disturbed import DisturbedRuns

    forget_imported()
    with DisturbedRuns() as disturbed:
        for one in probes:
            print(json.dumps(judge(one, stock, disturbed if is_all or one.disturbed else None)), flush=True)


def main(which: str, names: list[str]) -> int:
    """Judge probes, several at once; the code that the first judge to fail ended with."""
    torch.set_num_threads(1)
    forget_imported()
    is_all = which == "all"
    wanted = [one for one in KNOWN.values() if (is_all or one.short) and (not names or one.name in names)]
    judges = []
    for number in range(JUDGES):
        judges.append(os.fork())
        if judges[-1] == 0:
            try:
                judge_all(wanted[number::JUDGES], is_all)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    return max(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in judges)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
