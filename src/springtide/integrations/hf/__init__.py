"""Hugging Face's Trainer, elastic: `from springtide.integrations.hf import ElasticTrainer`.

`ElasticTrainer` is a mixin too: `class MyTrainer(ElasticTrainer, SFTTrainer)`. `ElasticSFTTrainer` is that one.
"""

from typing import Any

from springtide.integrations.frameworks import check_versions

#: Versions whose insides the adapter was written against and tested with.
TRIED = {"transformers": ("5.22.2",), "accelerate": ("1.15.0",)}
TRIED_TRL = {"trl": ("1.16.0",)}

check_versions(TRIED)

from springtide.integrations.hf.elastic_trainer import ElasticTrainer  # noqa: E402 - only a version that was tried

__all__ = ["ElasticSFTTrainer", "ElasticTrainer"]


def __getattr__(name: str) -> Any:
    if name != "ElasticSFTTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_versions(TRIED_TRL)
    from springtide.integrations.hf.elastic_sft import ElasticSFTTrainer

    return ElasticSFTTrainer
