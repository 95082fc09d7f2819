"""Python's own source as bytes, and a small decoder-only transformer that learns to continue it."""

import argparse
import ast
import functools
import inspect
import typing

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import Dataset

VOCABULARY = 256
CONTEXT = 64
READING = (argparse, ast, functools, inspect, typing)


class TextSource(Dataset[tuple[Tensor, Tensor]]):
    """Windows of the standard library's source: the bytes, and the same bytes one further."""

    def __init__(self, windows: int = 4096, context: int = CONTEXT) -> None:
        text = "".join(inspect.getsource(module) for module in READING).encode()
        self.tokens = torch.tensor(list(text))
        self.starts = torch.linspace(0, len(text) - context - 1, windows).long().tolist()
        self.context = context

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = self.starts[index]
        window = self.tokens[start : start + self.context + 1]
        return window[:-1], window[1:]


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.before_mixing = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, stream: Tensor) -> Tensor:
        attended: Tensor = stream + self.dropout(self.attend(self.before_attention(stream)))
        mixed: Tensor = self.dropout(self.mix(self.before_mixing(attended)))
        return attended + mixed

    def attend(self, stream: Tensor) -> Tensor:
        """What every position gathers from those before it."""
        batch, length, width = stream.shape
        parts = self.project(stream).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        gathered = scaled_dot_product_attention(query, key, value, is_causal=True)
        merged: Tensor = self.merge(gathered.transpose(1, 2).reshape(batch, length, width))
        return merged


class Gpt(nn.Module):
    """A GPT of 0.8 million parameters; the output layer is the token embedding again."""

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, VOCABULARY, bias=False)
        self.predict.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        stream = self.tokens(tokens) + self.positions(places)
        scores: Tensor = self.predict(self.norm(self.blocks(stream)))
        return scores


def measure_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the next byte, averaged over every position."""
    return cross_entropy(scores.flatten(0, 1), targets.flatten())
