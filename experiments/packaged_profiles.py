"""Makes the profile tables that the package ships from a formula: `python -m experiments.packaged_profiles`.

They are estimates, not measurements: good enough to try the simulator on a realistic mix of models that scale well
and badly. Whoever has measured their own models gives them with `--profiles DIR`.
"""

from dataclasses import dataclass
from math import log2
from pathlib import Path

from springtide.throughput.tables.profiles import BATCH_COLUMN, PACKAGED

SHARES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class ReferenceMachine:
    """A node: its devices, and the effective all-reduce bandwidth inside it and between such nodes."""

    devices: int
    inside_gb_per_s: float
    between_gb_per_s: float
    hop_s: float  # latency of one doubling of the group


@dataclass(frozen=True, slots=True)
class Model:
    """What one training step of a model costs on one device type."""

    fixed_s: float  # launch, optimizer step, input: independent of the batch
    sample_s: float  # forward and backward pass of one sample
    gradient_gb: float  # bytes to reduce per step
    batches: tuple[int, ...]


MACHINES = {"a100": ReferenceMachine(8, 40.0, 22.0, 0.0012), "t4": ReferenceMachine(4, 3.0, 1.5, 0.004)}

MODELS = {
    "a100": {
        "bert": Model(0.028, 0.00210, 0.44, (64, 128)),
        "deepspeech2": Model(0.034, 0.00900, 0.15, (32, 64)),
        "gpt2": Model(0.022, 0.00095, 0.25, (128, 256)),
        "inception3": Model(0.050, 0.00240, 0.10, (64, 128)),
        "resnet50": Model(0.024, 0.00190, 0.10, (64, 128, 256)),
        "vgg16": Model(0.012, 0.00280, 0.28, (64, 128, 256)),
    },
    "t4": {
        "bert": Model(0.250, 0.0700, 0.44, (384,)),
        "cifar10": Model(0.060, 0.00062, 0.05, (2048, 4096)),
        "deepspeech2": Model(0.200, 0.0300, 0.15, (320, 640)),
        "imagenet": Model(0.150, 0.0045, 0.10, (3200, 6400)),
        "ncf": Model(0.008, 0.00000035, 0.015, (32768,)),
        "yolov3": Model(0.180, 0.0330, 0.24, (64,)),
    },
}


def predict_speed(model: Model, machine: ReferenceMachine, batch: int, share: int) -> float:
    """Steps per second at a global batch on a share of devices in the best placement.

    step = fixed + sample * batch / g + [g > 1] * (hop * log2 g + 2 * (g - 1) / g * gradient / bandwidth)
    with the bandwidth inside a node while g devices fit into one, else the one between nodes.
    """
    step_s = model.fixed_s + model.sample_s * batch / share
    if share > 1:
        bandwidth = machine.inside_gb_per_s if share <= machine.devices else machine.between_gb_per_s
        step_s += machine.hop_s * log2(share) + 2 * (share - 1) / share * model.gradient_gb / bandwidth
    return 1.0 / step_s


def render_table(model: Model, machine: ReferenceMachine) -> str:
    """One model's table as CSV; shares above the batch are left empty."""
    lines = [",".join((BATCH_COLUMN, *map(str, SHARES)))]
    for batch in model.batches:
        speeds = (f"{predict_speed(model, machine, batch, share):.4f}" if share <= batch else "" for share in SHARES)
        lines.append(",".join((str(batch), *speeds)))
    return "\n".join(lines) + "\n"


def write_tables(folder: Path = PACKAGED) -> None:
    """Write every table of every device type."""
    for device_type, models in MODELS.items():
        home = folder / device_type
        home.mkdir(parents=True, exist_ok=True)
        for name, model in models.items():
            (home / f"{name}.csv").write_text(render_table(model, MACHINES[device_type]), encoding="utf-8")


if __name__ == "__main__":
    write_tables()
