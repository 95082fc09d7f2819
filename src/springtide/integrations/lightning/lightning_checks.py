"""What an elastic run under Lightning's Trainer cannot keep the bits of, refused by name."""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch.utilities.model_helpers import is_overridden

from springtide.errors import JobError
from springtide.integrations.callback_sources import steps_optimizer

#: Callbacks of Lightning that train, count or average by themselves, and why they are refused.
REFUSED = {
    "StochasticWeightAveraging": "it has weights of its own, and an epoch of its own at the end",
    "WeightAveraging": "it has weights of its own, which a process that joins or resumes has not",
    "GradientAccumulationScheduler": "how many updates an epoch has must be known; give accumulate_grad_batches",
    "LearningRateFinder": "it trains and takes back; find the rate before, with a script of its own",
    "BatchSizeFinder": "a batch size that depends on the device's memory changes the training",
}


def check_callbacks(callbacks: list[Any]) -> None:
    """Refuse callbacks of Lightning that a process which joins could not go on with."""
    for callback in callbacks:
        for kind in type(callback).__mro__:
            if kind.__module__.startswith("lightning.pytorch.") and kind.__name__ in REFUSED:
                raise JobError(f"callback {type(callback).__name__} in an elastic run: {REFUSED[kind.__name__]}")
        if not type(callback).__module__.startswith("lightning.") and steps_optimizer(type(callback)):
            raise JobError(
                f"callback {type(callback).__name__} steps the optimizer; in an elastic run that happens once per "
                "update, on the gradients of all logical workers. Change gradients in on_before_optimizer_step instead"
            )


def check_module(module: Any) -> None:
    """Refuse a module that is asked in the middle of the turns: what it changes there, later turns would find.

    Stock ranks all have their forward before it; on one process only the first logical worker has.
    """
    if module.automatic_optimization and is_overridden("on_before_zero_grad", module):
        raise JobError(
            f"{type(module).__name__} overrides on_before_zero_grad in an elastic run: it is called in the middle of "
            "the turns, after one logical worker's forward and before the others'. Count in on_train_batch_end or "
            "on_before_optimizer_step; to read gradients there, put the method into a callback"
        )


def check_resumed(ckpt_path: Any) -> None:
    """Refuse a checkpoint of Lightning's: it does not say where each logical worker's data and randomness stand."""
    if ckpt_path is not None:
        raise JobError(
            f"trainer.fit(ckpt_path={str(ckpt_path)!r}) in an elastic run: where an epoch goes on is the run's to "
            "know, and a job that is killed or moved goes on from its own checkpoints. To begin with these weights, "
            "call load_from_checkpoint and leave ckpt_path out"
        )


def check_precision(plugin: Any) -> None:
    """Refuse half precision with a scaled loss."""
    if getattr(plugin, "scaler", None) is not None:
        raise JobError(
            f"precision={plugin.precision!r} in an elastic run: its loss scaling was not compared with a stock run; "
            "use 'bf16-mixed'"
        )


def check_monitors(trainer: Any) -> None:
    """Refuse to stop, to choose a model or to lower a rate by what was logged of one process's turns."""
    monitors = list(list_monitors(trainer))
    if not monitors:
        return
    metas = [metric.meta for metric in trainer.fit_loop.epoch_loop._results.values()]
    names = {name for meta in metas for name in (meta.name, meta.forked_name(True), meta.forked_name(False))}
    for who, monitor in monitors:
        if monitor in names:
            raise JobError(
                f"{who}(monitor={monitor!r}) in an elastic run: {monitor!r} was logged in training, where it is made "
                "of the logical workers of one process, so it would depend on how many there are. Log a value in "
                "validation_step under a name of its own and monitor that: it is the same on every process"
            )


def list_monitors(trainer: Any) -> Iterator[tuple[str, str]]:
    """Who decides by a metric, and by which."""
    for callback in trainer.callbacks:
        if isinstance(getattr(callback, "monitor", None), str):
            yield type(callback).__name__, callback.monitor
    for config in trainer.strategy.lr_scheduler_configs:
        if config.reduce_on_plateau and config.monitor is not None:
            yield type(config.scheduler).__name__, config.monitor
