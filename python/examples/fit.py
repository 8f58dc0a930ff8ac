"""Four peers in one process learn to tell three spirals apart: python fit.py"""

import torch
from torch import nn

import nettorrent


def spirals(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on three noisy spiral arms, and which arm each is on."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.arange(n) % 3
    radius = torch.rand(n, generator=generator)
    angle = 4 * radius + 2.1 * arm + 0.1 * torch.randn(n, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm


def main() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    result = nettorrent.fit(
        model,
        nn.functional.cross_entropy,
        data=spirals(6000, seed=1),
        test=spirals(1500, seed=2),
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        schedule="cosine",
        epochs=10,
        batch=64,
        peers=4,
        strategy="ring-all-reduce",
    )
    print(f"{result.ending}: accuracy {result.accuracy:.1%}, run in {result.folder}")


if __name__ == "__main__":
    main()
