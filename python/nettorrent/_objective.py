"""From a batch to its loss: how the model is called, what is compared with what, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

MOST_METRICS = 4

Loss = Callable[[Any, Any], Tensor]
StepFunction = Callable[[nn.Module, Any], Any]
Metric = Callable[[Any, Any], Any]


class Judged(NamedTuple):
    """What a batch gave: its mean loss, the model's output, and the target where there is one."""

    loss: Tensor
    output: Any
    target: Any


class Objective:
    """How a batch becomes a loss.

    With `step`, that function decides: `step(model, batch)` gives the loss, or loss and output. With `loss`, a batch
    is inputs and a target: `loss(model(*inputs), target)`. With neither, the model gives the loss, as Hugging Face's
    do.
    """

    def __init__(
        self,
        loss: Loss | None = None,
        step: StepFunction | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        if loss is not None and step is not None:
            raise ValueError("give either loss or step: a step function computes the loss itself")
        if getattr(loss, "reduction", "mean") == "sum":
            raise ValueError(
                'use reduction="mean": peers average their gradients, so a loss must not grow with the batch'
            )
        if metrics and len(metrics) > MOST_METRICS:
            raise ValueError(f"there can be at most {MOST_METRICS} metrics, and these are {len(metrics)}")
        self.loss, self.step = loss, step
        self.metrics = dict(metrics or {})

    def __call__(self, model: nn.Module, batch: Any) -> Judged:
        """The loss of a batch."""
        if self.step is not None:
            made = self.step(model, batch)
            loss, output = made if isinstance(made, tuple) else (made, None)
            return Judged(_mean(loss), output, split_target(batch)[1])
        if self.loss is not None:
            inputs, target = split_target(batch)
            output = _logits(_call(model, inputs))
            return Judged(_mean(self.loss(output, inputs if target is None else target)), output, target)
        made = _call(model, batch)
        return Judged(_mean(_loss_in(made)), _logits(made), split_target(batch)[1])

    def measure(self, judged: Judged, n: int) -> list[float]:
        """The metrics of a batch, each times the number of its samples."""
        return [float(metric(judged.output, judged.target)) * n for metric in self.metrics.values()]


def n_correct(output: Any, target: Any) -> Tensor | None:
    """How many samples have the class with the largest output; None if this is no such classification."""
    is_classes = isinstance(output, Tensor) and output.ndim == 2 and output.shape[1] > 1
    if not is_classes or not isinstance(target, Tensor) or target.shape != output.shape[:1]:
        return None
    if target.is_floating_point() or target.dtype == torch.bool:
        return None
    right: Tensor = (output.detach().argmax(1) == target).sum()
    return right


def split_target(batch: Any) -> tuple[Any, Any]:
    """Inputs and target of a batch: the last of a tuple, or what a dict has as labels."""
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return tuple(batch[:-1]), batch[-1]
    if isinstance(batch, Mapping):
        name = next((name for name in ("labels", "label", "target", "targets") if name in batch), None)
        if name is not None:
            return {key: part for key, part in batch.items() if key != name}, batch[name]
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return batch[0], None
    return batch, None


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _logits(output: Any) -> Any:
    if isinstance(output, Mapping) and "logits" in output:
        return output["logits"]
    return getattr(output, "logits", output)


def _loss_in(output: Any) -> Tensor:
    if isinstance(output, Mapping):
        loss = output.get("loss")
    elif isinstance(output, (tuple, list)):
        loss = output[0]
    else:
        loss = getattr(output, "loss", output)
    if not isinstance(loss, Tensor) or loss.ndim > 1:
        raise TypeError(
            "the model gives no loss: give loss=, such as torch.nn.functional.cross_entropy, or step=, a function of "
            "model and batch that gives the loss"
        )
    return loss


def _mean(loss: Tensor) -> Tensor:
    return loss.mean() if loss.ndim else loss
