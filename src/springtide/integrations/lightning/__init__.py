"""Lightning's Trainer and Fabric, elastic: `import springtide.integrations.lightning`, then `strategy="springtide"`.

`springtide_find_unused_parameters_true` is the strategy that tells DDP so. For Fabric: `Fabric(strategy="springtide")`.
"""

from springtide.integrations.frameworks import check_versions

#: Versions whose insides the adapter was written against and tested with.
TRIED = {"lightning": ("2.6.6",)}

check_versions(TRIED)

from lightning.fabric.strategies import STRATEGY_REGISTRY  # noqa: E402 - only a version that was tried
from lightning.pytorch.strategies import StrategyRegistry  # noqa: E402

from springtide.integrations.lightning.elastic_fabric import make_fabric_strategy  # noqa: E402
from springtide.integrations.lightning.elastic_strategy import make_strategy  # noqa: E402

__all__ = ["make_fabric_strategy", "make_strategy"]

NAMES = {"springtide": {}, "springtide_find_unused_parameters_true": {"find_unused_parameters": True}}
for name, options in NAMES.items():
    StrategyRegistry.register(name, make_strategy, description="springtide's logical workers", **options)
    STRATEGY_REGISTRY.register(name, make_fabric_strategy, description="springtide's logical workers", **options)
