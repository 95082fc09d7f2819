"""What an elastic Trainer cannot keep the bits of, refused by name before anything is trained."""

import re
import sys
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from springtide.errors import JobError
from springtide.integrations.callback_sources import steps_optimizer
from springtide.integrations.frameworks import check_state, check_versions, choose_shown
from springtide.training.determinism import cuda

#: Versions of what a trainer or a model may be derived from, whether an adapter of ours names it or the script.
TRIED_TRL = {"trl": ("1.16.0",)}
TRIED_PEFT = {"peft": ("0.21.2",)}

WHERE = "an elastic Trainer"
#: Arguments of the Trainer, the values they may have, and why.
ALLOWED: dict[str, tuple[tuple[Any, ...], str]] = {
    "deepspeed": ((None,), "DeepSpeed shards and reduces by itself"),
    "fsdp": ((None, False, "", [], ()), "FSDP shards over processes, of which there may be any number"),
    "auto_find_batch_size": ((False,), "a batch size that depends on the device's memory changes the training"),
    "ddp_bucket_cap_mb": ((None, 25), "gradients are added in the order of DDP's own buckets of 25 MB"),
    "ddp_static_graph": ((None, False), "the order of DDP's buckets is not followed for a static graph"),
    "ignore_data_skip": ((False,), "a resumed epoch would see its first samples twice"),
    "batch_eval_metrics": ((False,), "metrics are computed when all logical workers' batches are there"),
    "parallelism_config": ((None,), "tensor and context parallelism split models over processes"),
    "fp16": ((False,), "its loss scaling was not compared with a stock run; use bf16"),
    "use_liger_kernel": ((False,), "its kernels were not compared with a stock run"),
    "torch_empty_cache_steps": ((None,), "it empties a cache in the middle of a turn"),
    "sync_ref_model": ((None, False), "a process that joins would have the reference model as it was at first"),
    "precompute_ref_log_probs": ((None, False), "they are gathered from all ranks at once"),
}
ACCELERATOR = {"dispatch_batches": (None, False), "use_seedable_sampler": (True,), "even_batches": (True,)}
#: Trainers of TRL that were compared with stock runs: their losses are made of a rank's own batch.
COMPARED = tuple(f"trl.trainer.{name}_trainer" for name in ("base", "sft", "dpo", "reward"))
#: Callbacks of TRL that have weights of their own, which a process that joins has not.
WITH_WEIGHTS = frozenset({"SyncRefModelCallback", "BEMACallback", "PEFTAdapterEMACallback"})
#: What an Accelerator gathers with, and who calls it for logs alone.
GATHERS = ("gather", "gather_for_metrics", "reduce")
LOGGING = (*COMPARED, "transformers.", "accelerate.")
RNG_FILE = re.compile(r"rng_state_(\d+)\.pth")


def check_kind(kind: type) -> None:
    """Refuse trainers of TRL that need values of all ranks at once, and versions of it that were never tried."""
    if comes_from(kind, "trl."):
        check_versions(TRIED_TRL)
    for one in kind.__mro__:
        if one.__module__.startswith("trl.") and one.__module__ not in COMPARED:
            raise JobError(
                f"{one.__name__} of TRL in an elastic Trainer: it puts values of all ranks into a loss or into samples "
                "that it generates, or was not compared with a stock run; logical workers take turns, so no place has "
                "a value of each. SFTTrainer, DPOTrainer and RewardTrainer work"
            )


def comes_from(kind: type, package: str) -> bool:
    """Whether a class is one of a package's, or derived from one."""
    return any(one.__module__.startswith(package) for one in kind.__mro__)


def check_model(model: Any) -> None:
    """Refuse adapters in a model of a version of PEFT that was never tried."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    if any(comes_from(type(one), "peft.") for one in modules):  # put into it, where it is no PeftModel itself
        check_versions(TRIED_PEFT)


def check_arguments(args: Any) -> None:
    """Refuse arguments of the Trainer that change what a logical worker does."""
    for name, (values, why) in ALLOWED.items():
        found = getattr(args, name, None)
        if found not in values:
            raise JobError(f"TrainingArguments({name}={found!r}) in an elastic Trainer: {why}; leave it out")
    if args.train_sampling_strategy == "batch_rebalance":
        raise JobError(
            "TrainingArguments(train_sampling_strategy='batch_rebalance') in an elastic Trainer: its batches are made "
            "per rank; use 'random', 'sequential' or 'group_by_length'"
        )
    check_accelerator(args.accelerator_config)


def place_arguments(args: Any, own: torch.device) -> None:
    """Let arguments that have found several GPUs know of the process's own only, as a rank's do."""
    place = choose_shown(args.device, own)
    if place.type != "cuda":
        return
    cuda.make_current(place)
    vars(args).update(_setup_devices=place, _n_gpu=1)
    if args.n_gpu != 1 or args.device != place:
        raise JobError(
            f"TrainingArguments has {args.n_gpu} GPUs and trains on {args.device}, this process holds {place}: batches "
            f"would be larger than a rank's. Let it see one: CUDA_VISIBLE_DEVICES={place.index or 0}"
        )


def check_environment() -> None:
    """Refuse what the environment switches on in accelerate."""
    check_state(None, WHERE)


def check_plugins(accelerator: Any) -> None:
    """Refuse what accelerate's own configuration or environment has switched on."""
    check_state(accelerator.state, WHERE)
    if accelerator.mixed_precision == "fp16":
        raise JobError(
            "accelerate's configuration switches on fp16 in an elastic Trainer: its loss scaling was not compared with "
            "a stock run; use bf16 (ACCELERATE_MIXED_PRECISION)"
        )


def refuse_search() -> NoReturn:
    """Refuse several trainings in one run."""
    raise JobError(
        "trainer.hyperparameter_search in an elastic Trainer: a run is one training. Submit each trial as a job of its "
        "own, with its values as arguments of the script (springtide submit takes sweeps)"
    )


def check_accelerator(config: Any) -> None:
    """Refuse settings of the Accelerator inside under which batches are not each rank's own."""
    for name, values in ACCELERATOR.items():
        found = getattr(config, name, values[0])
        if found not in values:
            raise JobError(f"accelerator_config {name}={found!r} in an elastic Trainer; it must be {values[-1]}")
    if (config.gradient_accumulation_kwargs or {}).get("sync_each_batch"):
        raise JobError(
            "accelerator_config sync_each_batch=True in an elastic Trainer; accumulated batches are reduced once"
        )


def watch_gathers(accelerator: Any, run: Any) -> None:
    """Refuse, from now on, that a turn gathers values of all ranks for more than a log."""
    for name in GATHERS:
        setattr(accelerator, name, partial(gather_in_place, getattr(accelerator, name), run))


def gather_in_place(gather: Callable[..., Any], run: Any, *given: Any, **named: Any) -> Any:
    """What an Accelerator gathers; in a turn only for those who log it."""
    caller = str(sys._getframe(1).f_globals.get("__name__", ""))
    if run.prepared and run.turns.worker is not None and not caller.startswith(LOGGING):
        raise JobError(
            f"accelerator.{gather.__name__} in a turn ({caller}): logical workers take turns, so no place has a value "
            "of each, and a loss of them would have other bits than on as many ranks. Make the loss of a worker's own "
            "batch; to log a value, let compute_metrics have it"
        )
    return gather(*given, **named)


def check_callbacks(callbacks: Iterable[Any]) -> None:
    """Refuse a callback that steps the optimizer: that is done once per global step, by the Trainer."""
    for callback in callbacks:
        kind = type(callback)
        if kind.__module__.startswith("transformers."):
            continue
        if any(one.__module__.startswith("trl.") and one.__name__ in WITH_WEIGHTS for one in kind.__mro__):
            raise JobError(
                f"callback {kind.__name__} in an elastic Trainer: it has weights of its own, which a process that "
                "joins or resumes has not; leave it out"
            )
        if steps_optimizer(kind):
            raise JobError(
                f"callback {kind.__name__} steps the optimizer; in an elastic Trainer that happens once per global "
                "step, on the gradients of all logical workers. Change gradients in on_pre_optimizer_step instead"
            )


def check_best_metric(best: str | None, of_process: Collection[str]) -> None:
    """Refuse to choose a model by what a trainer adds to its logs from the batches of this process only."""
    name = best if best is None or best.startswith("eval_") else f"eval_{best}"
    if name in of_process:
        raise JobError(
            f"metric_for_best_model={best!r} in an elastic Trainer: TRL computes it of one process's batches, so it "
            "would depend on the number of processes. Use 'eval_loss', or compute it in compute_metrics"
        )


def check_checkpoint(folder: Path, logical_workers: int) -> None:
    """Refuse a Trainer's checkpoint of another number of ranks: the same data would not be seen again."""
    if not (folder / "trainer_state.json").is_file():
        raise JobError(f"{folder} has no trainer_state.json; give a checkpoint folder that a Trainer has saved")
    ranks = sorted(int(match[1]) for file in folder.iterdir() if (match := RNG_FILE.fullmatch(file.name)))
    alone = (folder / "rng_state.pth").exists()
    if alone and ranks:
        raise JobError(
            f"{folder} has random states of a run on 1 rank and of one on {len(ranks)}: runs of several world sizes "
            "have written there. Resume from a folder that one run has written"
        )
    found = 1 if alone else len(ranks)
    if found != logical_workers or (ranks and ranks != list(range(found))):
        raise JobError(
            f"{folder} was saved by {found} ranks, the run has {logical_workers} logical workers; a rank's samples "
            f"and random state have no other place to go. Resume with springtide.init(logical_workers={found or 'N'})"
        )
