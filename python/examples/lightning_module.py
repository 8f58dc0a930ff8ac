"""A LightningModule trained by four peers: python lightning_module.py"""

import torch
from fit import spirals
from lightning import LightningModule
from torch import nn

from nettorrent.lightning import fit


class Spirals(LightningModule):
    """Tells three spiral arms apart."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        points, arms = batch
        return nn.functional.cross_entropy(self.net(points), arms)

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    torch.manual_seed(1)
    data = {"train_data": spirals(6000, seed=1), "val_data": spirals(1500, seed=2)}
    result = fit(Spirals(), **data, epochs=10, batch=64, peers=4, schedule="cosine")
    print(f"{result.ending}: loss {result.loss:.3f}, run in {result.folder}")


if __name__ == "__main__":
    main()
