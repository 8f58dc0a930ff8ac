"""LightningModules across machines: `fit` in place of `Trainer.fit`."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor
from torch.optim import Optimizer

from ._anywhere import train
from ._watch import Result


def fit(
    module: LightningModule,
    train_data: Any,
    val_data: Any = None,
    *,
    ticket: str | None = None,
    wait_for: int | None = None,
    **options: Any,
) -> Result:
    """Trains a LightningModule with its `training_step`, `validation_step` and `configure_optimizers`.

    Options are those of `nettorrent.fit`; with `wait_for`, those of `nettorrent.start`; with `ticket`, this machine
    joins a swarm. `training_step` gives the loss. So does `validation_step`, or it logs one whose name ends in `loss`.
    What modules log is not kept, and hooks other than these three are not called.
    """
    if not module.automatic_optimization:
        raise ValueError(
            "modules with automatic_optimization = False step themselves: use nettorrent.start and its batches()"
        )
    if "optimizer" not in options:
        options["optimizer"] = _optimizer(module.configure_optimizers())
    return train(module, data=train_data, test=val_data, step=_loss_of, ticket=ticket, wait_for=wait_for, **options)


def _optimizer(configured: Any) -> Optimizer:
    """The one optimizer of what `configure_optimizers` gave."""
    optimizers, schedulers = configured, None
    if isinstance(configured, dict):
        optimizers, schedulers = configured["optimizer"], configured.get("lr_scheduler")
    elif isinstance(configured, (tuple, list)) and configured and isinstance(configured[0], (tuple, list)):
        optimizers, schedulers = configured
    if isinstance(optimizers, (tuple, list)) and len(optimizers) == 1:
        optimizers = optimizers[0]
    if not isinstance(optimizers, Optimizer):
        raise ValueError("configure_optimizers must give one optimizer: several cannot be trained by a swarm")
    if schedulers:
        warnings.warn('the module\'s lr_scheduler is not used: give schedule=, such as schedule="cosine"', stacklevel=3)
    return optimizers


def _loss_of(module: Any, batch: Any) -> Tensor:
    logged: dict[str, Any] = {}
    module.log = lambda name, value, *_, **__: logged.update({name: value})
    module.log_dict = lambda values, *_, **__: logged.update(values)
    try:
        made = module.training_step(batch, 0) if module.training else module.validation_step(batch, 0)
    finally:
        del module.log, module.log_dict
    loss = made.get("loss") if isinstance(made, dict) else made
    if loss is None:
        loss = next((value for name, value in logged.items() if name.endswith("loss")), None)
    if loss is None:
        raise ValueError("validation_step must give the loss, or log it under a name that ends in `loss`")
    return torch.as_tensor(loss)
