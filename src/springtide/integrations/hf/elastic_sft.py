"""TRL's SFTTrainer, elastic."""

from trl import SFTTrainer

from springtide.integrations.hf.elastic_trainer import ElasticTrainer


class ElasticSFTTrainer(ElasticTrainer, SFTTrainer):
    """An SFTTrainer whose ranks are logical workers."""
