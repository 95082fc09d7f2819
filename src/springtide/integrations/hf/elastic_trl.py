"""TRL's trainers, elastic: those whose loss is made of a rank's own batch."""

from trl import DPOTrainer, RewardTrainer, SFTTrainer

from springtide.integrations.hf.elastic_trainer import ElasticTrainer


class ElasticSFTTrainer(ElasticTrainer, SFTTrainer):
    """An SFTTrainer whose ranks are logical workers."""


class ElasticDPOTrainer(ElasticTrainer, DPOTrainer):
    """A DPOTrainer whose ranks are logical workers."""


class ElasticRewardTrainer(ElasticTrainer, RewardTrainer):
    """A RewardTrainer whose ranks are logical workers."""
