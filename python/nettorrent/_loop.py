"""The user owns the training loop: what a worker is asked to do is done in the user's thread."""

from __future__ import annotations

import inspect
import json
import math
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ._data import to_device
from ._flat import floats, integers
from ._handover import Give, Handover
from ._interrupts import interrupts_put_off
from ._modes import eval_mode
from ._objective import n_correct
from ._random import device_lock
from ._worker import Left, Score, TorchWorker

LOOK_EVERY = 0.1
"""After how many seconds without work it is looked whether somebody has pressed Ctrl-C."""

Evaluate = Callable[[], tuple[float, int, int]]


class Runs(Protocol):
    """What a loop needs of `nettorrent._core.Run`."""

    def run(self, on_event: Callable[[str], None] | None) -> dict[str, Any]: ...

    def leave(self) -> None: ...


@dataclass(frozen=True)
class Report:
    """What the user tells of a batch. If its gradient overflowed under a GradScaler, it is left out."""

    loss: float
    n_correct: int
    overflowed: bool = False


Turn = Generator[Any, Report, Any]
"""Work that needs the user: it yields batches, is sent a report for each, and returns what Rust asked for."""


@dataclass
class _Request:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    answer: Future[Any]


@dataclass(frozen=True)
class End:
    """How a run ended: with a result, or with a problem."""

    result: dict[str, Any] | None
    problem: BaseException | None


def drive(run: Runs, inbox: queue.SimpleQueue[Any]) -> None:
    """Runs a peer in a thread of its own: its events go to the inbox as dicts, and at last an `End`."""

    def go() -> None:
        try:
            end = End(run.run(lambda line: inbox.put(json.loads(line))), None)
        except Left:
            end = End({"ending": "left"}, None)
        except BaseException as problem:
            end = End(None, problem)
        inbox.put(end)

    threading.Thread(target=go, name="nettorrent", daemon=True).start()


class LoopWorker(TorchWorker):
    """A worker that computes in Rust's thread, or in that of the user's loop. Until it is told which, calls wait."""

    def __init__(self, *args: Any, evaluate: Evaluate | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._inbox: Future[queue.SimpleQueue[Any] | None] = Future()
        self._own_evaluate = evaluate
        self._steps_now = False
        self.overlaps = False
        """Whether gradients are handed over while the loop's backward pass goes on."""

    def overlap(self) -> None:
        """From now on, gradients are handed over while the loop's backward pass goes on."""
        if self._accumulate > 1:
            raise ValueError("overlap=True hands over the gradient of a single backward pass: leave out accumulate")
        if not Handover.can_be_on(self.device):
            raise ValueError(f"overlap=True works on a CPU and with CUDA, not on {self.device.type}: leave it out")
        self.overlaps = True

    def compute_here(self) -> None:
        """From now on, calls are carried out where they are made."""
        self._inbox.set_result(None)

    def compute_in_loop(self, inbox: queue.SimpleQueue[Any]) -> None:
        """From now on, calls are put into an inbox, and wait for the user's thread to answer."""
        self._inbox.set_result(inbox)

    def abandon(self) -> None:
        """Nobody is going to train: calls that wait, and later ones, fail."""
        if not self._inbox.done():
            self._inbox.set_exception(Left("the swarm was left before training began"))
            self.close()

    @property
    def n_test(self) -> int:
        """With a test function of the user's, the test counts as one sample: one peer does it all."""
        return super().n_test if self._own_evaluate is None else 1

    def gradient(self, *args: Any) -> Any:
        return self._ask(super().gradient, self._gradient_turn, args)

    def local_begin(self, *args: Any) -> Any:
        return self._ask(super().local_begin, super().local_begin, args)

    def local_step(self, *args: Any) -> Any:
        return self._ask(super().local_step, self._local_turn, args)

    def local_end(self, *args: Any) -> Any:
        return self._ask(super().local_end, super().local_end, args)

    def step(self, *args: Any) -> Any:
        return self._ask(super().step, super().step, args)

    def change(self, *args: Any) -> Any:
        return self._ask(super().change, super().change, args)

    def score(self, *args: Any) -> Any:
        knows_loss = self._objective.loss is not None or self._objective.step is not None
        return self._ask(super().score, super().score if knows_loss else self._score_turn, args)

    def test(self, *args: Any) -> Any:
        function = super().test if self._own_evaluate is None else self._test_by_user
        return self._ask(function, function, args)

    def _ask(self, here: Callable[..., Any], in_loop: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        inbox = self._inbox.result()
        if inbox is None:
            return here(*args)
        if self._is_closed:
            raise Left("training has ended")
        request = _Request(in_loop, args, Future())
        inbox.put(request)
        return request.answer.result()

    def _gradient_turn(
        self,
        values: memoryview,
        samples: memoryview,
        seed: int,
        out: memoryview,
        has_values: bool = False,
        give: Give | None = None,
    ) -> Turn:
        with device_lock(self.device):
            with self._computing():
                self._bring(floats(values), has_values)
                before = self._copy_of_buffers()
            if self.overlaps and give is not None:
                self._handover.begin(floats(out), give)
            try:
                score, _ = yield from self._train(integers(samples), seed)
                with self._computing():
                    self._hand_over_gradient(out, before, self.overlaps and give is not None)
            finally:
                self._handover.drop()
        return score

    def _local_turn(self, samples: memoryview, seed: int, lr: float, most_loss: float) -> Turn:
        with device_lock(self.device):
            before = self._copy_of_buffers()
            score, overflowed = yield from self._train(integers(samples), seed)
            if overflowed:
                return score
            with self._computing():
                return self._step_if_usual(score, self._has_finite_gradient(), before, lr, most_loss)

    def _score_turn(self, values: memoryview, samples: memoryview, has_values: bool = False) -> Turn:
        """Without a loss function to call, the user's loop shows how well the model does; what it learns is undone."""
        loss_sum, n_right = 0.0, 0
        with device_lock(self.device):
            self._bring(floats(values), has_values)
            before = self._copy_of_buffers()
            for part in integers(samples).split(self._batch) if samples.nbytes else []:
                score, _ = yield from self._train(part, 0)
                loss_sum, n_right = loss_sum + score[0], n_right + score[1]
            self.layout.drop_gradient()
            self._put_buffers_back(before)
        return loss_sum, n_right, samples.nbytes // 8, [0.0] * len(self.metrics)

    def _train(self, samples: Tensor, seed: int) -> Generator[Any, Report, tuple[Score, bool]]:
        """Yields the micro-batches; afterwards the parameters' gradients are their mean."""
        n, loss_sum, n_right, overflowed = len(samples), 0.0, 0, False
        parts = self._micro_batches(samples)
        sums: list[Tensor | None] = [None] * len(self.layout.params)
        self.layout.drop_gradient()
        for part, batch in zip(parts, self._read(self._data, parts, seed), strict=True):
            report = yield to_device(batch, self.device)
            loss_sum, n_right = loss_sum + report.loss * len(part), n_right + report.n_correct
            overflowed |= report.overflowed
            if len(parts) > 1:
                self._add_gradient(sums, len(part) / n)
        if len(parts) > 1:
            for p, total in zip(self.layout.params, sums, strict=True):
                p.grad = total
        if overflowed:
            self.layout.drop_gradient()
        return (loss_sum, n_right, n, [0.0] * len(self.metrics)), overflowed

    def _add_gradient(self, sums: list[Tensor | None], share: float) -> None:
        """Moves the gradients to their weighted sums, so that each micro-batch begins with none."""
        for k, p in enumerate(self.layout.params):
            if p.grad is not None:
                total = sums[k]
                sums[k] = p.grad * share if total is None else total.add_(p.grad, alpha=share)
        self.layout.drop_gradient()

    def _test_by_user(self, values: memoryview, start: int, stop: int, has_values: bool = False) -> Score:
        evaluate, no_metrics = self._own_evaluate, [0.0] * len(self.metrics)
        if evaluate is None or start == stop:
            return 0.0, 0, 0, no_metrics
        with self._computing(), eval_mode(self.model), torch.no_grad():
            self._bring(floats(values), has_values)
            loss_sum, n_right, n = evaluate()
        self.counts_correct |= n_right > 0
        return float(loss_sum), int(n_right), int(n), no_metrics

    def _has_finite_gradient(self) -> bool:
        return math.isfinite(self._largest_gradient().item())

    def _optimizer_step(self, lr: float) -> None:
        self._steps_now = True
        try:
            super()._optimizer_step(lr)
        finally:
            self._steps_now = False

    def refuse_foreign_step(self, *_: Any) -> None:
        """A hook before the optimizer's steps: in a loop all of them are ours."""
        if not self._steps_now:
            raise RuntimeError(
                "swarm.step(loss) makes the optimizer's step: take optimizer.step() (or scaler.step()) out of the loop"
            )

    def report(self, loss: Tensor | float, output: Any, target: Any, scaler: Any) -> Report:
        """What a batch gave, with its gradient unscaled if a GradScaler has scaled it."""
        right = n_correct(output, target)
        self.counts_correct |= right is not None
        overflowed = False
        if self.overlaps and scaler is not None and scaler.is_enabled():
            raise RuntimeError(
                "with overlap=True parts of the scaled gradient are on their way already: leave overlap out, or train "
                "in bf16, which needs no GradScaler"
            )
        if scaler is not None and scaler.is_enabled():
            try:
                scaler.unscale_(self.optimizer)
            except RuntimeError as problem:
                if "already been called" not in str(problem):
                    raise
            overflowed = not self._has_finite_gradient()
            scaler.update()
        value = loss.detach() if isinstance(loss, Tensor) else loss
        return Report(float(value), 0 if right is None else int(right), overflowed)


class Loop:
    """The user's side: it gives out batches, and takes back what came of them."""

    def __init__(self, worker: LoopWorker, run: Runs, on_event: Callable[[dict[str, Any]], None]) -> None:
        self._worker, self._run, self._on_event = worker, run, on_event
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._current: tuple[_Request, Turn] | None = None
        self._batch: Any = None
        self._is_out = False
        self._end: End | None = None

    @property
    def result(self) -> dict[str, Any] | None:
        """How the run ended, as Rust tells; None while it goes on or if it failed."""
        return None if self._end is None else self._end.result

    def batches(self) -> Generator[Any, None, None]:
        """Batches until the run ends. Leaving the loop early leaves the swarm."""
        self._worker.compute_in_loop(self._inbox)
        hook = self._worker.optimizer.register_step_pre_hook(self._worker.refuse_foreign_step)
        drive(self._run, self._inbox)
        try:
            self._serve()
            while self._current is not None:
                self._is_out = True
                yield self._batch
                if self._is_out:
                    raise RuntimeError(
                        "swarm.step(loss) was not called for this batch: call it once for each, after loss.backward()"
                    )
            if self._end is not None and self._end.problem is not None:
                raise self._end.problem
        finally:
            self._leave()
            hook.remove()

    def step(self, loss: Tensor | float, output: Any = None, target: Any = None, scaler: Any = None) -> None:
        """Ends a batch: its gradient is exchanged, or the optimizer's step is made, before this returns."""
        if not self._is_out or self._current is None:
            raise RuntimeError("swarm.step(loss) belongs into `for batch in swarm.batches(...)`, once for each batch")
        report = self._worker.report(loss, output, target, scaler)
        self._is_out = False
        request, turn = self._current
        with interrupts_put_off():
            self._go_on(request, turn, lambda: turn.send(report))
        self._serve()

    def _serve(self) -> None:
        """Does what Rust asks for until there is a batch for the user, or the run has ended."""
        with interrupts_put_off() as interrupts:
            while self._current is None and self._end is None and not interrupts:
                try:
                    item = self._inbox.get(timeout=LOOK_EVERY)
                except queue.Empty:
                    continue
                if isinstance(item, _Request):
                    self._begin(item)
                else:
                    self._take_note(item)

    def _take_note(self, item: Any) -> None:
        if isinstance(item, End):
            self._end = item
        else:
            self._on_event(item)

    def _begin(self, request: _Request) -> None:
        if inspect.isgeneratorfunction(request.function):
            turn: Turn = request.function(*request.args)
            self._go_on(request, turn, lambda: next(turn))
            return
        try:
            request.answer.set_result(request.function(*request.args))
        except BaseException as problem:
            request.answer.set_exception(problem)
            raise

    def _go_on(self, request: _Request, turn: Turn, advance: Callable[[], Any]) -> None:
        """Brings a turn to its next batch, or to its end."""
        self._current = None
        try:
            self._batch = advance()
        except StopIteration as done:
            self._batch = None
            request.answer.set_result(done.value)
        except BaseException as problem:
            request.answer.set_exception(problem)
            raise
        else:
            self._current = request, turn

    def _leave(self) -> None:
        """If the run goes on: leaves it, and answers what Rust still asks until it has ended."""
        self._is_out = False
        if self._end is not None:
            return
        self._run.leave()
        if self._current is not None:
            request, turn = self._current
            turn.close()
            request.answer.set_exception(Left("the training loop was left"))
            self._current = None
        while self._end is None:
            item = self._inbox.get()
            if isinstance(item, _Request):
                self._answer_while_leaving(item)
            else:
                self._take_note(item)

    @staticmethod
    def _answer_while_leaving(request: _Request) -> None:
        try:
            if inspect.isgeneratorfunction(request.function):
                raise Left("the training loop was left")
            request.answer.set_result(request.function(*request.args))
        except Exception as problem:
            request.answer.set_exception(problem)
