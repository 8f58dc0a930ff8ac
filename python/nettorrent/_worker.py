"""A PyTorch model as a worker: it computes gradients, steps and scores for the peer that Rust runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._data import Collate, Samples, as_samples, test_samples, to_device
from ._flat import Layout, ask, copy_each, floats, integers, kind_of
from ._handover import Give, Handover
from ._modes import eval_mode, let_lone_samples_pass
from ._objective import Judged, Loss, Metric, Objective, StepFunction, n_correct
from ._optimizer import OptimizerLike, OptimizerState, make_optimizer, trained_by
from ._random import device_lock, own_cpu, own_device, seed_device
from ._undo import Undo

Score = tuple[float, int, int, list[float]]


class Left(Exception):
    """This peer has left the swarm: nothing more is computed for it."""


def best_device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _exact(device: torch.device) -> torch.device:
    """The device with its index: `cuda` is the current one."""
    is_any = device.type == "cuda" and device.index is None
    return torch.device("cuda", torch.cuda.current_device()) if is_any else device


class TorchWorker:
    """Computes for one peer. Rust calls its methods, one at a time.

    Memory views hold f32 numbers (samples: i64), valid only during a call. `values` is the model as a flat vector,
    see `Layout`; `vectors` are the optimizer's state after `n_steps` steps, see `OptimizerState`. A learning rate is a
    factor on those of the parameter groups. Scores are the sum of losses, the number of correct ones, the number of
    samples, and the sums of metrics; those of training have no metrics.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None,
        data: Any,
        test: Any = None,
        optimizer: OptimizerLike = "adamw",
        lr: float | None = None,
        *,
        step: StepFunction | None = None,
        metrics: Mapping[str, Metric] | None = None,
        batch: int = 32,
        device: torch.device | str | None = None,
        autocast: torch.dtype | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
        compile: bool = False,
        collate: Collate | None = None,
        samples_per_epoch: int | None = None,
    ) -> None:
        if autocast == torch.float16:
            raise ValueError("autocast=torch.float16 needs a GradScaler: use torch.bfloat16, or a loop of your own")
        self.device = best_device() if device is None else _exact(torch.device(device))
        self.model = model.to(self.device)
        if not model.training:
            model.train()
        made = make_optimizer(optimizer, model, lr)
        self.layout = Layout(model, trained_by(made, model))
        self.optimizer = made
        self._state = OptimizerState(made, self.layout.params)
        self._undo = Undo(made, self.layout.params, self.device)
        self._objective = Objective(loss, step, metrics)
        self._forward: Any = torch.compile(model) if compile else model
        self._data = as_samples(data, collate, samples_per_epoch)
        self._test = test_samples(test, collate)
        self._batch, self._accumulate = batch, accumulate
        self._autocast, self._clip_norm = autocast, clip_norm
        self._n_steps = 0
        self._versions: list[int] | None = None
        """Those of the parameters when Rust last knew what they are, if it does."""
        self._before: list[Tensor] = []
        self._handover = Handover(self.layout, self.device)
        self._is_watched = False
        self._hooks = [] if compile else let_lone_samples_pass(model)
        self._is_closed = False
        self.counts_correct = False
        """Whether outputs and targets are those of a classification, so that accuracy says something."""

    # What there is.

    @property
    def n_samples(self) -> int:
        """How many training samples there are."""
        return len(self._data)

    @property
    def n_test(self) -> int:
        """How many test samples there are."""
        return len(self._test)

    @property
    def metrics(self) -> list[str]:
        """The names of the user's metrics."""
        return list(self._objective.metrics)

    @property
    def n_optimizer_vectors(self) -> int:
        """How many vectors as long as the parameters the optimizer's state fills."""
        return self._state.n_vectors

    def tensors(self) -> list[tuple[str, list[int], str]]:
        """Name, shape and kind ("parameter", "buffer", "frozen") of the tensors, in the order of the flat vector."""
        return self.layout.tensors()

    def labels(self) -> list[int] | None:
        """The class of each training sample, where that is known without reading them all."""
        return self._data.labels()

    def fill_initial(self, out: memoryview) -> None:
        """Writes the model as it is, which before training is as the user gave it."""
        self.layout.store(floats(out))

    def load(self, values: Tensor) -> None:
        """Puts a flat vector into the model."""
        self.layout.load(values)

    def close(self) -> None:
        """Waits for a call that is being computed, and refuses later ones: the model is the user's again."""
        self._is_closed = True
        with device_lock(self.device):
            for hook in self._hooks:
                hook.remove()
            self._handover.close()

    # Gradients that are exchanged.

    def gradient(
        self,
        values: memoryview,
        samples: memoryview,
        seed: int,
        out: memoryview,
        has_values: bool = False,
        give: Give | None = None,
    ) -> Score:
        """Writes the gradient of the samples' mean loss; for buffers, what the batch took off them.

        Buckets that are written may be given before the rest.
        """
        with self._computing():
            self._bring(floats(values), has_values)
            before = self._copy_of_buffers()
            is_begun = self._begin_handover(floats(out), give)
            try:
                tally = self._backward(integers(samples), seed)
                self._hand_over_gradient(out, before, is_begun)
            finally:
                self._handover.drop()
            return self._ask_score(tally)()[0]

    def _begin_handover(self, out: Tensor, give: Give | None) -> bool:
        """Has the next backward pass hand the gradient over in parts, unless it comes in several; the first one shows whether it does."""
        is_possible = give is not None and self._accumulate == 1 and Handover.can_be_on(self.device)
        if not is_possible or self._handover.has_repeated:
            return False
        is_first, self._is_watched = not self._is_watched, True
        self._handover.begin(out, None if is_first else give)
        return not is_first

    def _hand_over_gradient(self, out: memoryview, before: Sequence[Tensor], is_begun: bool = False) -> None:
        if is_begun:
            self._handover.end()
        else:
            self.layout.store_gradient(floats(out))
        self.layout.store_lost(floats(out), before)
        self.layout.drop_gradient()

    def _bring(self, values: Tensor, has_values: bool) -> None:
        """Puts values into the model; parameters only if they are not there, or somebody has changed them since."""
        if not self._bring_params(values, has_values):
            # Batches change the buffers.
            self.layout.load_buffers(values)

    def _bring_params(self, values: Tensor, has_values: bool) -> bool:
        """Puts values into the model, unless Rust knows that its parameters are there; whether it did."""
        if has_values and self.layout.is_exact and self._versions == self.layout.versions():
            return False
        self.layout.load(values)
        self._versions = self.layout.versions()
        return True

    def step(
        self,
        values: memoryview,
        vectors: Sequence[memoryview],
        n_steps: int,
        gradient: memoryview,
        lr: float,
        has_values: bool = False,
        has_state: bool = False,
    ) -> int:
        """Takes a step with a gradient, which is spent: changes values and vectors, and gives the new number of steps."""
        new = floats(values)
        with self._computing():
            self._bring_params(new, has_values)
            self._step_with(vectors, n_steps, floats(gradient), lr, has_state)
            self.layout.store_params(new)
            self._versions = self.layout.versions()
        new[self.layout.n_params :] -= floats(gradient)[self.layout.n_params :]
        return n_steps + 1

    def change(
        self,
        values: memoryview,
        vectors: Sequence[memoryview],
        n_steps: int,
        gradient: memoryview,
        lr: float,
        out: memoryview,
        has_values: bool = False,
        has_state: bool = False,
    ) -> int:
        """Writes what a step would add to the values, which stay; the vectors are then as after the step, and the gradient is spent."""
        n_params = self.layout.n_params
        old, added = floats(values), floats(out)
        with self._computing():
            self._bring_params(old, has_values)
            self._step_with(vectors, n_steps, floats(gradient), lr, has_state)
            self.layout.store_params(added)
            self._versions = None
        added[:n_params] -= old[:n_params]
        torch.neg(floats(gradient)[n_params:], out=added[n_params:])
        return n_steps + 1

    def _step_with(
        self, vectors: Sequence[memoryview], n_steps: int, gradient: Tensor, lr: float, has_state: bool
    ) -> None:
        state = [floats(vector) for vector in vectors]
        if not (has_state and self._state.is_exact):
            self._state.restore(state, n_steps)
        self.layout.load_gradient(gradient)
        self._optimizer_step(lr)
        self.layout.drop_gradient()
        self._state.pack(state, n_steps + 1)

    def _optimizer_step(self, lr: float) -> None:
        if self._clip_norm is not None:
            nn.utils.clip_grad_norm_(self.layout.params, self._clip_norm)
        with self._state.scaled_lr(lr):
            self.optimizer.step()

    # Steps that are taken locally.

    def local_begin(
        self,
        values: memoryview,
        vectors: Sequence[memoryview],
        n_steps: int,
        has_values: bool = False,
        has_state: bool = False,
    ) -> None:
        """Brings values and state to the device, for the local steps that follow."""
        with self._computing():
            self._bring(floats(values), has_values)
            if not (has_state and self._state.is_exact):
                self._state.restore([floats(vector) for vector in vectors], n_steps)
        self._n_steps = n_steps

    def local_step(self, samples: memoryview, seed: int, lr: float, most_loss: float) -> Score | None:
        """Takes a step with a batch; None, and no step, if its loss is above `most_loss` or anything is not finite."""
        with self._computing():
            before = self._copy_of_buffers()
            tally = self._backward(integers(samples), seed)
            read = self._ask_score(tally, self._largest_gradient())
            # A GPU that waited for the answer would wait for the step's launches, too.
            is_taken = self._undo.remember()
            if is_taken:
                self._optimizer_step(lr)
            score, largest = read()
            return self._step_if_usual(score, math.isfinite(largest), before, lr, most_loss, is_taken)

    def _step_if_usual(
        self,
        score: Score,
        is_finite: bool,
        before: Sequence[Tensor],
        lr: float,
        most_loss: float,
        is_taken: bool = False,
    ) -> Score | None:
        is_usual = is_finite and score[0] <= most_loss * max(1, score[2])
        if is_usual:
            if not is_taken:
                self._optimizer_step(lr)
            self._n_steps += 1
        else:
            if is_taken:
                self._undo.put_back()
            self._put_buffers_back(before)
        self.layout.drop_gradient()
        return score if is_usual else None

    def local_end(self, values: memoryview, vectors: Sequence[memoryview]) -> int:
        """Writes values and state as they are after the last step, and gives the number of steps."""
        with self._computing():
            self.layout.store(floats(values))
            self._state.pack([floats(vector) for vector in vectors], self._n_steps)
            self._versions = self.layout.versions()
        return self._n_steps

    def _largest_gradient(self) -> Tensor:
        """The sum of each gradient's largest number: it is finite if all of them are."""
        grads = [p.grad for p in self.layout.params if p.grad is not None]
        numbers = [g if g.layout == torch.strided else g.coalesce().values() for g in grads]
        largest = torch._foreach_norm(numbers, math.inf) if numbers else [torch.zeros((), device=self.device)]
        return torch.stack([n.float() for n in largest]).sum()

    # Scores.

    def score(self, values: memoryview, samples: memoryview, has_values: bool = False) -> Score:
        """How well the model does on training samples, in evaluation mode."""
        return self._evaluate(floats(values), has_values, self._data, integers(samples))

    def test(self, values: memoryview, start: int, stop: int, has_values: bool = False) -> Score:
        """How well the model does on a range of the test samples, in evaluation mode."""
        return self._evaluate(floats(values), has_values, self._test, torch.arange(start, stop))

    def _evaluate(self, values: Tensor, has_values: bool, data: Samples, samples: Tensor) -> Score:
        loss_sum, n_right, metrics = 0.0, 0, [0.0] * len(self._objective.metrics)
        with self._computing(), eval_mode(self.model), torch.no_grad():
            self._bring(values, has_values)
            for part in samples.split(self._batch) if len(samples) else []:
                (batch,) = self._read(data, [part], 0)
                judged = self._judge(batch)
                loss_sum += judged.loss.item() * len(part)
                n_right += self._count(judged)
                metrics = [a + b for a, b in zip(metrics, self._objective.measure(judged, len(part)), strict=True)]
        return loss_sum, n_right, len(samples), metrics

    # What these share.

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        with own_device(self.device), torch.enable_grad():
            if self._is_closed:
                raise Left("training has ended")
            yield

    def _read(self, data: Samples, parts: Sequence[Tensor], seed: int) -> list[Any]:
        with own_cpu(seed):
            batches = [data.read(part) for part in parts]
        seed_device(seed, self.device)
        return batches

    def _backward(self, samples: Tensor, seed: int) -> list[tuple[int, Tensor, Tensor | None]]:
        """Adds up the gradient of the samples' mean loss, in as many parts as `accumulate` says.

        Gives the size, loss and number of correct ones of each part. They stay on the device: to read one is to wait for it.
        """
        self.layout.drop_gradient()
        n, tally = len(samples), []
        parts = self._micro_batches(samples)
        for part, batch in zip(parts, self._read(self._data, parts, seed), strict=True):
            judged = self._judge(batch)
            share = len(part) / n
            (judged.loss if share == 1 else judged.loss * share).backward()
            tally.append((len(part), judged.loss.detach(), n_correct(judged.output, judged.target)))
        return tally

    def _ask_score(
        self, tally: Sequence[tuple[int, Tensor, Tensor | None]], also: Tensor | None = None
    ) -> Callable[[], tuple[Score, float]]:
        """Asks the device for the score of a batch, and for another number; what this gives waits for the answer."""
        sizes, losses, rights = [part[0] for part in tally], [part[1] for part in tally], [part[2] for part in tally]
        counted = [right for right in rights if right is not None]
        self.counts_correct |= bool(counted)
        asked = [*losses, *counted, *([] if also is None else [also])]
        precision = torch.float64 if any(loss.dtype == torch.float64 for loss in losses) else torch.float32
        answer = ask(torch.stack([x.to(self.device, precision).reshape(()) for x in asked]) if asked else torch.empty(0))

        def read() -> tuple[Score, float]:
            numbers = answer()
            loss_sum = sum(loss * size for loss, size in zip(numbers, sizes, strict=False))
            n_right = int(sum(numbers[len(losses) : len(losses) + len(counted)]))
            score = (loss_sum, n_right, sum(sizes), [0.0] * len(self._objective.metrics))
            return score, 0.0 if also is None else numbers[-1]

        return read

    def _micro_batches(self, samples: Tensor) -> Sequence[Tensor]:
        return samples.tensor_split(min(self._accumulate, len(samples))) if len(samples) else ()

    def _judge(self, batch: Any) -> Judged:
        with torch.autocast(self.device.type, self._autocast, enabled=self._autocast is not None):
            return self._objective(self._forward, to_device(batch, self.device))

    def _count(self, judged: Judged) -> int:
        right = n_correct(judged.output, judged.target)
        self.counts_correct |= right is not None
        return 0 if right is None else int(right)

    def _copy_of_buffers(self) -> list[Tensor]:
        """The buffers as they are now, until they are copied again."""
        buffers = self.layout.buffers()
        if list(map(kind_of, self._before)) != list(map(kind_of, buffers)):
            self._before = [torch.empty_like(buffer, requires_grad=False) for buffer in buffers]
        copy_each(self._before, buffers)
        return self._before

    def _put_buffers_back(self, before: Sequence[Tensor]) -> None:
        copy_each(self.layout.buffers(), before)
