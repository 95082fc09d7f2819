"""What the adapters of all frameworks share: versions that were tried, the run of this process, and its surroundings.

In an elastic run a framework must see one process that is rank p of N, with no process group of its own. In a reference
run (`springtide verify`) it must see what torchrun would show it, and is then stock in every respect.
"""

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from springtide.errors import JobError
from springtide.training import run as runs
from springtide.training.ddp_run import ReferenceRun
from springtide.training.elastic_run import ElasticRun
from springtide.training.run import Run

#: What torchrun tells a process, which a framework would open a process group by.
TOLD_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


#: What shards or reduces by itself: arguments of an Accelerator, and attributes of its state, with the variable that
#: switches each on. Accelerate sets the variable too where it is given a plugin.
PLUGINS = {
    "deepspeed_plugin": "ACCELERATE_USE_DEEPSPEED",
    "deepspeed_plugins": "ACCELERATE_USE_DEEPSPEED",
    "fsdp_plugin": "ACCELERATE_USE_FSDP",
    "megatron_lm_plugin": "ACCELERATE_USE_MEGATRON_LM",
    "parallelism_config": "ACCELERATE_USE_PARALLELISM_CONFIG",
}
#: DDP's options that the run has, and one that changes no bits; others must have DDP's own defaults. Of an
#: accelerate handler, what it puts around the reduction, which its `to_kwargs` leaves out.
DDP_OPTIONS = ("find_unused_parameters", "broadcast_buffers")
OF_MEMORY = ("gradient_as_bucket_view",)
HOOKS = ("comm_hook", "comm_wrapper")
ON = ("1", "true", "yes", "y", "t", "on")


def check_state(state: Any, where: str) -> None:
    """Refuse what an Accelerator was given by position, or has by its configuration or the environment.

    Its state has some of these only where a launcher has begun several processes; without one, the environment tells.
    That is asked before there is an Accelerator too (`state` is None): it looks for the packages, and would name those.
    """
    for name, variable in PLUGINS.items():
        if getattr(state, name, None) is not None or os.environ.get(variable, "").lower() in ON:
            raise JobError(
                f"accelerate was given or has configured {name.removesuffix('_plugin')}, which shards or reduces by "
                f"itself, in {where}; leave it out, and switch it off in accelerate's configuration ({variable})"
            )


def find_ddp_options(handler: Any, where: str) -> dict[str, Any]:
    """What accelerate would tell DDP, if the run can be told it too: names of options that have no defaults' values."""
    given = {} if handler is None else dict(handler.to_kwargs())
    for name in OF_MEMORY:
        given.pop(name, None)
    hooks = [name for name in HOOKS if getattr(getattr(handler, name, None), "value", "no") != "no"]
    strange = sorted([*hooks, *(name for name in given if name not in DDP_OPTIONS)])
    if strange:
        raise JobError(
            f"DistributedDataParallel would be told {', '.join(strange)} in {where}, which cannot follow it: gradients "
            "would have other bits. Leave it out"
        )
    return given


def check_versions(tried: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse versions of packages that were never tried: adapters stand on what is inside of them."""
    for package, versions in tried.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise JobError(f"{package} is not installed; install it: pip install {package}=={versions[-1]}") from None
        if found not in versions:
            raise JobError(
                f"{package} is {found}; springtide's adapter was tried with {', '.join(versions)} only, and another "
                f"version may train other bits without a word. Install it: pip install {package}=={versions[-1]}"
            )


def find_run(who: str) -> Run:
    """The run that the script has begun."""
    if not runs._current:
        raise JobError(f"{who} was made before the run; call springtide.init(logical_workers=...) at the script's top")
    return runs._current[-1]


def set_surroundings(run: Run) -> None:
    """Show a framework a process on its own in an elastic run, and a rank of torchrun's in a reference run."""
    if isinstance(run, ElasticRun):
        for name in TOLD_BY_TORCHRUN:
            os.environ.pop(name, None)
    elif isinstance(run, ReferenceRun):
        os.environ.update(describe_rank(run))


def choose_shown(found: torch.device, own: torch.device) -> torch.device:
    """The device that a framework is shown: this process's own GPU in place of the first one that it sees.

    On a machine with several a process sees all of them; a framework that sees no ranks would take the first, or all.
    What is no GPU was chosen by the script, and stays.
    """
    return own if found.type == own.type == "cuda" else found


def choose_root(parallel: Sequence[torch.device], own: torch.device) -> torch.device:
    """Where a strategy puts its module: on this process's own GPU, unless it was told of other devices than GPUs."""
    return choose_shown(parallel[0], own) if parallel else own


def choose_gpus(asked: object, own: torch.device) -> list[int] | None:
    """The GPUs that `devices=...` asks a process for: its own, however many there are to be; None if none is."""
    return None if asked in (None, 0, "0", [], ()) else [own.index or 0]


def describe_rank(run: ReferenceRun) -> dict[str, str]:
    """What torchrun would tell this rank of a stock run."""
    host, _, port = (run.settings.store or "").rpartition(":")
    rank, size = str(run.rank), str(run.logical_workers)
    told = (rank, size, rank, size, "0", host, port)
    on_cpu = {} if torch.cuda.is_available() else {"ACCELERATE_USE_CPU": "true"}
    return {**dict(zip(TOLD_BY_TORCHRUN, told, strict=True)), "OMP_NUM_THREADS": str(run.settings.threads), **on_cpu}


runs.when_begun(set_surroundings)
