"""Hugging Face's Trainer, elastic: `from springtide.integrations.hf import ElasticTrainer`.

`ElasticTrainer` is a mixin too: `class MyTrainer(ElasticTrainer, AnyTrainer)`. `ElasticSeq2SeqTrainer` is one of these,
and so are `ElasticSFTTrainer`, `ElasticDPOTrainer` and `ElasticRewardTrainer` of TRL, which need TRL.
"""

from typing import Any

from springtide.integrations.frameworks import check_versions

#: Versions whose insides the adapter was written against and tested with.
TRIED = {"transformers": ("5.22.2",), "accelerate": ("1.15.0",)}
OF_TRL = ("ElasticDPOTrainer", "ElasticRewardTrainer", "ElasticSFTTrainer")

check_versions(TRIED)

# Only a version that was tried has what this derives from.
from springtide.integrations.hf import trainer_checks  # noqa: E402
from springtide.integrations.hf.elastic_trainer import ElasticSeq2SeqTrainer, ElasticTrainer  # noqa: E402

__all__ = ["ElasticDPOTrainer", "ElasticRewardTrainer", "ElasticSFTTrainer", "ElasticSeq2SeqTrainer", "ElasticTrainer"]


def __getattr__(name: str) -> Any:
    if name not in OF_TRL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_versions(trainer_checks.TRIED_TRL)
    from springtide.integrations.hf import elastic_trl

    return getattr(elastic_trl, name)
