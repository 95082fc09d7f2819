"""A tiny GPT-2 with random weights and a byte-level dataset, both made on the spot: nothing is downloaded."""

from pydoc_data.topics import topics

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel

LENGTH = 64


class Bytes(Dataset[dict[str, torch.Tensor]]):
    """Python's own help texts, cut into samples of as many bytes."""

    def __init__(self, first: int, last: int) -> None:
        text = "\n".join(topics[name] for name in sorted(topics)).encode()
        self.samples = torch.frombuffer(bytearray(text), dtype=torch.uint8)[first * LENGTH : last * LENGTH]

    def __len__(self) -> int:
        return len(self.samples) // LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.samples[index * LENGTH : (index + 1) * LENGTH].long()
        return {"input_ids": ids, "labels": ids}


def make_model() -> GPT2LMHeadModel:
    """Two layers over bytes."""
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 256, "n_positions": LENGTH}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
