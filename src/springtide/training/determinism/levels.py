"""Determinism levels D0, D1, D2 as plain data: environment, torch switches, and what each level promises.

Choosing is pure and tested without a GPU; `apply` is the only effect. On CPUs a level's bits depend on the number of
threads, on oneDNN and on the instruction set, which stand for device types there.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from springtide.errors import JobError, NondeterminismError
from springtide.training.determinism.cuda import name_kind

LEVELS = ("D0", "D1", "D2")

#: Read by the libraries once, at their first use, so they must be set before the first operator of a process.
PINNED_INSTRUCTIONS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2,STRICT"}


@dataclass(frozen=True, slots=True)
class Switches:
    """What a level asks of a process."""

    level: str
    threads: int
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Refuse operators without a deterministic implementation (CUDA; on CPUs one thread is deterministic).
    deterministic_algorithms: bool = False
    tf32: bool = True
    cudnn_benchmark: bool = True
    onednn: bool = True
    #: Give torch.compile a graph per shape, whatever shapes were seen before, and no benchmarks that choose kernels.
    static_graphs: bool = False


def choose(level: str, threads: int, cuda: bool) -> Switches:
    """The switches of a level on CPUs, or on CPUs and CUDA devices."""
    if level not in LEVELS:
        raise JobError(f"determinism level {level!r} is unknown; choose one of {', '.join(LEVELS)}")
    environment: dict[str, str] = {} if level == "D0" else {"TORCHINDUCTOR_DETERMINISTIC": "1"}
    if cuda:
        environment["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if level == "D2":
        environment |= PINNED_INSTRUCTIONS
    return Switches(
        level=level,
        threads=1 if level == "D2" else threads,
        environment=environment,
        deterministic_algorithms=cuda,
        tf32=not cuda,
        cudnn_benchmark=False,
        onednn=level != "D2",
        static_graphs=level != "D0",
    )


def apply(switches: Switches) -> None:
    """Put a level's switches into effect in this process."""
    os.environ.update(switches.environment)
    torch.set_num_threads(switches.threads)
    set_backends(switches)
    if switches.static_graphs:
        keep_graphs_static()
    if switches.level == "D2":
        check_instructions()


def set_backends(switches: Switches) -> None:
    """Set what a script might set as well."""
    torch.backends.mkldnn.enabled = switches.onednn  # type: ignore[assignment]
    torch.backends.cudnn.benchmark = switches.cudnn_benchmark
    if switches.deterministic_algorithms:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cuda.matmul.allow_tf32 = switches.tf32
        torch.backends.cudnn.allow_tf32 = switches.tf32


def find_changed(switches: Switches) -> list[str]:
    """The switches that a script has set otherwise since, as `torch.backends.cudnn.benchmark = True` is in many."""
    onednn: Any = torch.backends.mkldnn.enabled
    found: dict[str, tuple[bool, bool]] = {"torch.backends.mkldnn.enabled": (onednn, switches.onednn)}
    if switches.deterministic_algorithms:
        found |= {
            "torch.use_deterministic_algorithms": (torch.are_deterministic_algorithms_enabled(), True),
            "torch.backends.cudnn.benchmark": (torch.backends.cudnn.benchmark, switches.cudnn_benchmark),
            "torch.backends.cudnn.allow_tf32": (torch.backends.cudnn.allow_tf32, switches.tf32),
            "torch.backends.cuda.matmul.allow_tf32": (torch.backends.cuda.matmul.allow_tf32, switches.tf32),
        }
    return [name for name, (now, wanted) in found.items() if now != wanted]


def keep_graphs_static() -> None:
    """Let what torch.compile makes of a batch depend on that batch alone.

    By default the second shape that a process sees has a graph for all shapes made, which the first shape then uses as
    well; and after eight graphs the rest runs without one. A process that joins or resumes has seen other shapes.
    """
    import torch._dynamo.config as settings  # which every optimizer imports

    settings.automatic_dynamic_shapes = False
    settings.fail_on_recompile_limit_hit = True


def name_kernels(level: str, device: torch.device) -> str:
    """What a device must have in common with others for the level's bits; empty where the level asks for nothing.

    D0 promises nothing on other devices, and D2 the same on all.
    """
    if level != "D1":
        return ""
    return name_kind(device) if device.type == "cuda" else str(torch.backends.cpu.get_cpu_capability())


def check_instructions() -> None:
    """Refuse D2 in a process whose operators were already bound to another instruction set."""
    found = torch.backends.cpu.get_cpu_capability()
    if found != "AVX2":
        wanted = " ".join(f"{name}={value}" for name, value in PINNED_INSTRUCTIONS.items())
        raise NondeterminismError(
            f"level D2 needs AVX2 kernels, but this process already uses {found}; call springtide.init before any "
            f"other torch operation, or start with {wanted}"
        )


def keep(switches: Switches | None, level: str, warn: Callable[[str], None]) -> None:
    """Restore the settings that the level requires where the script has changed them, and say so."""
    changed = [] if switches is None else find_changed(switches)
    if switches is not None and changed:
        set_backends(switches)
        warn(
            f"the script has changed {', '.join(changed)} after springtide.init; level {level} requires the "
            "values set there, so they were restored"
        )
