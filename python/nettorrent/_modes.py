"""The modes of a model's layers: evaluation for a while, and batch norm with a single sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; afterwards each module is in the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def let_lone_samples_pass(model: nn.Module) -> list[RemovableHandle]:
    """Has batch norm use its running statistics for a lone sample, which has no variance and is refused else.

    How many samples of a batch a peer gets depends on how fast it is: one is not the user's mistake.
    """
    hooks = []
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            hooks.append(module.register_forward_pre_hook(_rest_if_alone))
            hooks.append(module.register_forward_hook(_wake, always_call=True))
    return hooks


def _rest_if_alone(norm: nn.Module, inputs: tuple[Any, ...]) -> None:
    numbers = inputs[0] if inputs else None
    if norm.training and isinstance(numbers, Tensor) and numbers.ndim > 1 and numbers.numel() == numbers.shape[1]:
        norm.training = False
        _resting.add(norm)


def _wake(norm: nn.Module, *_: Any) -> None:
    if norm in _resting:
        _resting.discard(norm)
        norm.training = True


_resting: WeakSet[nn.Module] = WeakSet()
"""Batch norms that are in evaluation mode for one sample."""
