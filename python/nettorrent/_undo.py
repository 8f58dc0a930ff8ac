"""A step that is taken before it is known whether it counts, and taken back if not: so a GPU need not wait for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ._flat import copy_each, kind_of

LARGEST_SHARE = 0.25
"""Of the memory that is free after a backward pass, how much copies may take."""


class Undo:
    """What parameters and an optimizer's state were before a step, on the device.

    Only PyTorch's own optimizers are known to keep all that a step changes where it can be copied.
    """

    def __init__(self, optimizer: Optimizer, params: Sequence[Tensor], device: torch.device) -> None:
        self._optimizer, self._params, self._device = optimizer, list(params), device
        self._changing: list[Tensor] = []
        self._copies: list[Tensor] = []
        self._state: dict[Tensor, dict[str, Any]] = {}
        self._groups: list[dict[str, Any]] = []
        self._is_possible = device.type == "cuda" and type(optimizer).__module__.startswith("torch.optim.")

    def remember(self) -> bool:
        """Copies what a step changes; False if that cannot be, or nobody would wait less for it."""
        if not self._is_possible or self._has_hooks():
            return False
        state = self._optimizer.state
        self._state = {p: dict(state[p]) for p in self._params if p in state}
        self._groups = [dict(group) for group in self._optimizer.param_groups]
        values = [value for owner in (*self._state.values(), *self._groups) for value in owner.values()]
        self._changing = [*self._params, *(value for value in values if isinstance(value, Tensor))]
        if not self._has_room():
            self._is_possible, self._changing = False, []
            return False
        copy_each(self._copies, self._changing)
        return True

    def put_back(self) -> None:
        """Has everything be as it was."""
        copy_each(self._changing, self._copies)
        state = self._optimizer.state
        for p in self._params:
            state.pop(p, None)
        state.update(self._state)
        for group, before in zip(self._optimizer.param_groups, self._groups, strict=True):
            group.clear()
            group.update(before)

    def _has_hooks(self) -> bool:
        """Whether somebody would hear of a step that is taken back."""
        return bool(self._optimizer._optimizer_step_pre_hooks or self._optimizer._optimizer_step_post_hooks)

    def _has_room(self) -> bool:
        if list(map(kind_of, self._copies)) == list(map(kind_of, self._changing)):
            return True
        self._copies = []
        if sum(tensor.nbytes for tensor in self._changing) > LARGEST_SHARE * self._free():
            return False
        self._copies = [torch.empty_like(tensor, requires_grad=False) for tensor in self._changing]
        return True

    def _free(self) -> int:
        return torch.cuda.mem_get_info(self._device)[0]
