"""Lightning's Trainer and Fabric, elastic: `import springtide.integrations.lightning`, then `strategy="springtide"`.

`springtide_find_unused_parameters_true` is the strategy that tells DDP so. For Fabric: `Fabric(strategy="springtide")`.
"""

import sys
from functools import partial
from typing import Any, NoReturn

from springtide.errors import JobError
from springtide.integrations.frameworks import check_versions, choose_gpus
from springtide.training.run import Run, when_begun

#: Versions whose insides the adapter was written against and tested with.
TRIED = {"lightning": ("2.6.6",)}

check_versions(TRIED)

from lightning.fabric.accelerators import CUDAAccelerator as FabricCUDAAccelerator  # noqa: E402
from lightning.fabric.strategies import STRATEGY_REGISTRY  # noqa: E402 - only a version that was tried
from lightning.pytorch.accelerators import CUDAAccelerator  # noqa: E402
from lightning.pytorch.strategies import StrategyRegistry  # noqa: E402

from springtide.integrations.lightning.elastic_fabric import make_fabric_strategy  # noqa: E402
from springtide.integrations.lightning.elastic_strategy import make_strategy  # noqa: E402

__all__ = ["make_fabric_strategy", "make_strategy"]


def show_own_gpu(run: Run) -> None:
    """Let `devices=4`, which is the number of ranks, ask for the one GPU that this process holds, where it has one."""
    if run.device.type == "cuda":
        for accelerator in (CUDAAccelerator, FabricCUDAAccelerator):
            accelerator.parse_devices = staticmethod(partial(choose_gpus, own=run.device))


def refuse_old_package(**_: Any) -> NoReturn:
    """Refuse the strategy where it is asked of another package."""
    raise JobError(
        'Trainer(strategy="springtide") of pytorch_lightning: the adapter is for the package lightning, which has the '
        "same Trainer; write `import lightning.pytorch as pl` in place of `import pytorch_lightning as pl`"
    )


def watch_old_package(_: Run) -> None:
    """Let pytorch_lightning, which has a register of its own, refuse our strategies by name."""
    old = sys.modules.get("pytorch_lightning.strategies")
    for name in NAMES if old is not None else ():
        old.StrategyRegistry.register(name, refuse_old_package, override=True)  # type: ignore[union-attr]


NAMES = {"springtide": {}, "springtide_find_unused_parameters_true": {"find_unused_parameters": True}}
for name, options in NAMES.items():
    StrategyRegistry.register(name, make_strategy, description="springtide's logical workers", **options)
    STRATEGY_REGISTRY.register(name, make_fabric_strategy, description="springtide's logical workers", **options)
when_begun(show_own_gpu)
when_begun(watch_old_package)
