"""Memory and time of logical workers in one process beside packed processes, up to a device's memory.

    python -m experiments.sharing     (an order as JSON on its input)

A number of packed workers that would not fit the emulated device is not started: it is out of memory.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from experiments.peaks import Peak, measure_peak

Row = tuple[int, str, float | None, float | None]  # workers, kind, bytes, seconds of a mini-batch


def measure_counts(example: str, counts: Sequence[int], device_bytes: int, steps: int) -> list[Row]:
    """Every number of workers in one process, and packed as far as they fit."""
    rows: list[Row] = []
    for workers in counts:
        found = measure_peak(example, workers, packed=False, steps=steps)
        rows.append((workers, "logical workers", found.memory_bytes, found.minibatch_cpu_s))
    each = 0.0
    for workers in counts:
        packed: Peak | None = None
        if each * workers <= device_bytes:
            packed = measure_peak(example, workers, packed=True, steps=steps)
            each = max(each, packed.memory_bytes / workers)
        fits = packed is not None and packed.memory_bytes <= device_bytes
        rows.append(
            (workers, "packing", *((packed.memory_bytes, packed.minibatch_cpu_s) if packed and fits else (None, None)))
        )
    return rows


def main() -> None:
    """Answer one order."""
    order: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps(measure_counts(**order)), flush=True)


if __name__ == "__main__":
    main()
