"""EasyScale's three stages with real training: 4 V100, then 2, then one V100 and two P100, device types emulated.

    python -m experiments.stages     (an order as JSON on its input: example, batch, per_stage)

Six runs: stock DDP on four ranks with default kernels (homo) and with those of level D2 (heter), and ours with and
without each level. Answers with every loss of the last worker, and where each run's state first leaves each reference.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.codes import reach_checkout
from experiments.emulated_devices import DEVICE_TYPES
from springtide.training.settings import Settings
from springtide.verification.digest_compare import Records, find_difference, read_records
from springtide.verification.scripted_jobs import Host, ScriptedJob, ScriptedRun

SCRIPT = Path(__file__).parent / "scripts" / "stages.py"
#: Logical workers by device; those on a device that stays keep their process. Slots 4 and 5 are P100.
STAGES = (
    {"slot:0": 1, "slot:1": 1, "slot:2": 1, "slot:3": 1},
    {"slot:0": 2, "slot:1": 2},
    {"slot:0": 2, "slot:4": 1, "slot:5": 1},
)
DEVICES = dict.fromkeys(("slot:4", "slot:5"), DEVICE_TYPES["P100"])
PATIENCE_S = 900.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One run: stock or ours, the level of its kernels, and whether the order of adding is kept."""

    name: str
    level: str
    stock: bool = False
    fixed_order: bool = True


VARIANTS = (
    Variant("DDP-homo", "D1", stock=True),
    Variant("DDP-heter", "D2", stock=True),
    Variant("D0", "D1", fixed_order=False),
    Variant("D1", "D1"),
    Variant("D0+D2", "D2", fixed_order=False),
    Variant("D1+D2", "D2"),
)


def run_variants(example: str, batch: int, per_stage: int) -> dict[str, Any]:
    """Losses of every variant, and the first step at which its whole state differs from either reference."""
    losses: dict[str, list[str]] = {}
    records: dict[str, Records] = {}
    with tempfile.TemporaryDirectory(prefix="springtide-stages-") as name, Host(reach_checkout()) as host:
        for variant in VARIANTS:
            home = Path(name) / variant.name
            run_variant(variant, (example, str(home), str(batch)), per_stage, host)
            losses[variant.name] = read_losses(home)
            records[variant.name] = read_records(home / "traces")
    return {"losses": losses, "differs": {name: compare(records, name) for name in records}}


def run_variant(variant: Variant, words: tuple[str, ...], per_stage: int, host: Host) -> None:
    """Train one variant through the stages and leave its losses and traces."""
    home = Path(words[1])
    home.mkdir()
    settings = Settings(
        mode="reference" if variant.stock else "elastic",
        level=variant.level,
        max_steps=per_stage * len(STAGES),
        trace_dir=home / "traces",
        hold_at="" if variant.stock else ",".join(str(per_stage * stage) for stage in range(1, len(STAGES))),
    )
    order = () if variant.fixed_order else ("by-process",)
    job = ScriptedJob(SCRIPT, (*words, *order), settings=settings, devices=DEVICES)
    with ScriptedRun(job, host, tuple(STAGES[0].values())) as run:
        while (step := run.wait_for_hold(PATIENCE_S)) is not None:
            stage = STAGES[step // per_stage]
            run.resize(tuple(stage.values()), tuple(stage))
            run.go()
            run.wait_for_resize(PATIENCE_S)


def read_losses(home: Path) -> list[str]:
    """The last worker's losses in the order of the steps, whichever process wrote them."""
    lines = [line.split() for path in sorted(home.glob("*.txt")) for line in path.read_text().splitlines()]
    return [value for _, value in sorted((int(step), value) for step, value in lines)]


def compare(records: Mapping[str, Records], name: str) -> dict[str, int | None]:
    """The first step at which a run's parameters, optimizer, buffers or losses differ from each reference."""
    found = {}
    for reference in ("DDP-homo", "DDP-heter"):
        difference = find_difference(records[reference], records[name])
        found[reference] = difference.step if difference else None
    return found


if __name__ == "__main__":
    print(json.dumps(run_variants(**json.load(sys.stdin))), flush=True)
