"""Pauses of real rescales and migrations: an example resized while it trains. Wall time.

    python -m experiments.pauses     (an order as JSON on its input: example, rounds)

A pause lasts from the last step before the change to the first step after it. Joiners come from a warm fork server and
run the script up to `prepare` while the others train on, as on the platform.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from springtide.examples import folder
from springtide.training.group.rosters import spread
from springtide.verification.scripted_jobs import Host, ScriptedJob, ScriptedRun, name_slots

# Little data per step, so that a pause is more than a step.
ARGUMENTS = {
    "cnn": ("--epochs", "100000", "--batch-size", "8"),
    "gpt": ("--epochs", "1000", "--windows", "80", "--batch-size", "2"),
    "recommender": ("--epochs", "100000", "--batch-size", "64"),
    "resnet": ("--epochs", "1000", "--images", "160", "--batch-size", "4"),
}
WORKERS = 4


def measure_sizes(example: str, sizes: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """(processes before, processes after, pause) of each resize of one run that starts on the first size.

    A size that stays is a migration: the last process is replaced by a new one.
    """
    job = ScriptedJob(folder(example) / "train.py", ARGUMENTS[example])
    with Host() as host, ScriptedRun(job, host, spread(WORKERS, sizes[0])) as run:
        run.wait_for_step(5)
        devices = name_slots(sizes[0])
        for size in sizes[1:]:
            before, heard = len(devices), len(run.events)
            keep = min(before, size) if before != size else size - 1
            free = [name for name in name_slots(2 * WORKERS) if name not in devices]
            devices = (*devices[:keep], *free[: size - keep])
            run.resize(spread(WORKERS, size), devices)
            run.wait_for_resize()
            run.wait_for_step(run.progress.step + 3)
            yield before, size, find_pause(run.events[max(0, heard - 2) :])


def find_pause(events: list[dict[str, Any]]) -> float:
    """Seconds from the last step before a `resized` event to the first after it."""
    at = next(number for number, event in enumerate(events) if event["event"] == "resized")
    before = [event["at_s"] for event in events[:at] if event["event"] == "progressed"]
    after = [event["at_s"] for event in events[at:] if event["event"] == "progressed"]
    return float(after[0] - before[-1])


def main() -> None:
    """Answer one order."""
    order = json.load(sys.stdin)
    print(json.dumps(list(measure_sizes(order["example"], order["sizes"]))), flush=True)


if __name__ == "__main__":
    main()
