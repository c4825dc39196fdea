"""What `torch_watch` trains: a small convolutional network and a small GPT, on random data."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import nn

N_CHARACTERS, LENGTH, WIDTH = 64, 64, 128


class Setting(NamedTuple):
    """A model, its data, and the layer whose activations are asked for."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor
    layer: str


class Net(nn.Sequential):
    """Four convolutions and a classifier, about 66,000 parameters in 18 tensors."""

    def __init__(self) -> None:
        sizes = ((3, 32), (32, 32), (32, 64), (64, 64))
        layers = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1, stride=1 + i % 2), nn.BatchNorm2d(b), nn.ReLU())
                  for i, (a, b) in enumerate(sizes)]  # fmt: skip
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class GPT(nn.Module):
    """Four blocks of causal attention, about 818,000 parameters in 53 tensors; the loss is of the next characters."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(N_CHARACTERS, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(4)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, N_CHARACTERS, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next characters, shape (batch, N_CHARACTERS, LENGTH), from (batch, LENGTH)."""
        x = self.characters(text) + self.places
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(x)).transpose(1, 2)


def cnn(batch: int) -> Setting:
    """Return the network with images of 32 x 32."""
    return Setting(Net(), torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,)), "3.2")


def gpt(batch: int) -> Setting:
    """Return the GPT with an eighth of the batch, as texts."""
    text = torch.randint(0, N_CHARACTERS, (max(1, batch // 8), LENGTH + 1))
    return Setting(GPT(), text[:, :-1], text[:, 1:], "blocks.2.linear2")


MODELS: Final = {"CNN": cnn, "GPT": gpt}
