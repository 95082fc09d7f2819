"""Step time of frameworks on logical workers beside the frameworks' own DDP, at P = N, in turns with it.

Needs the extras `hf` and `lightning`. CPU seconds per step, summed over the ranks, because neighbours on a shared
machine do not change them, and wall seconds, which mean something on an idle one. The bar of both is 1.03.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

SCRIPT = Path(__file__).parent / "scripts" / "framework_steps.py"
BAR = 1.03


def time_ranks(framework: str, stock: bool, ranks: int, steps: int) -> dict[str, float]:
    """CPU and wall seconds of a step on so many ranks: the sum of the one, the longest of the other."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    words += [str(SCRIPT), framework, "--steps", str(steps), *(["--stock"] if stock else [])]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"cpu_s"')]
    if done.returncode or len(rows) != ranks:
        raise SystemExit(f"{' '.join(words)} ended with code {done.returncode}: {done.stderr[-1500:]}")
    return {"cpu_s": sum(row["cpu_s"] for row in rows), "wall_s": max(row["wall_s"] for row in rows)}


def time_pair(framework: str, ranks: int, steps: int, ours_first: bool) -> list[dict[str, float]]:
    """Ours and stock; each begins in turn, because a machine grows warm, or its neighbours awake."""
    taken = {stock: time_ranks(framework, stock, ranks, steps) for stock in (not ours_first, ours_first)}
    return [taken[False], taken[True]]


def main() -> None:
    """Measure each framework in turns with itself, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frameworks", default="hf,lightning,accelerate")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=88)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    table = Table("framework", "time", "ours ms/step", "stock ms/step", "ratio", "bar", title=f"P = N = {args.ranks}")
    for framework in args.frameworks.split(","):
        pairs = [time_pair(framework, args.ranks, args.steps, number % 2 == 0) for number in range(args.rounds)]
        for kind in ("cpu_s", "wall_s"):
            ours, stock = ([pair[place][kind] for pair in pairs] for place in (0, 1))
            ratio = median(mine / theirs for mine, theirs in zip(ours, stock, strict=True))
            times = [f"{median(values) * 1e3:.2f}" for values in (ours, stock)]
            table.add_row(framework, kind[:-2], *times, f"{ratio:.3f}", f"<= {BAR}")
    Console().print(table)


if __name__ == "__main__":
    main()
