"""A peer of a swarm across machines."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ._data import batch_size
from ._loop import End, Loop, LoopWorker, drive
from ._objective import Loss
from ._optimizer import OptimizerLike
from ._watch import Callback, Event, Result, Watch

MakeWorker = Callable[[int | None], LoopWorker]
"""Makes the worker for a batch size."""
Connect = Callable[[MakeWorker, int | None], Any]
"""Starts or joins a swarm, with the worker and the batch size that the data came with; gives a `_core.Run`."""


@dataclass(frozen=True)
class Described:
    """What a worker is made of, once the data are known."""

    model: nn.Module
    loss: Loss | None
    test: Any
    optimizer: OptimizerLike
    lr: float | None
    options: Mapping[str, Any]

    def worker(self, data: Any, batch: int | None) -> LoopWorker:
        options = dict(self.options)
        if self.loss is None and options.get("step") is None:
            options.setdefault("device", next(self.model.parameters()).device)
        if batch is not None:
            options["batch"] = batch
        return LoopWorker(self.model, self.loss, data, self.test, self.optimizer, self.lr, **options)


def resumes(run: Any) -> str:
    """How to go on with a run that was stopped."""
    return f'Go on with resume="{run.folder}"'


class Swarm:
    """A peer of a swarm across machines; made by `start` and `join`.

    `run()` trains to the end. `events()` does so too, and gives each event as a dict. With `batches()` the loop is
    yours:

        for x, y in swarm.batches(loader):
            loss = loss_function(model(x), y)
            loss.backward()
            swarm.step(loss)

    Batches lie on the model's device. Gradients are zeroed for you, and `step` makes the optimizer's step, so a loop
    has neither `zero_grad` nor `optimizer.step`. Leaving the loop leaves the swarm.

    The model stays on the device where it is unless `device` is given or a loss or step function is, and a GPU is
    there.
    """

    def __init__(
        self,
        described: Described,
        connect: Connect,
        data: Any,
        callbacks: Iterable[Callback],
        progress: bool,
    ) -> None:
        self._described, self._connect_run = described, connect
        self._callbacks, self._progress = tuple(callbacks), progress
        self._worker: LoopWorker | None = None
        self._run: Any = None
        self._watch: Watch | None = None
        self._loop: Loop | None = None
        self._has_begun = False
        self.result: Result | None = None
        """How training ended, once it has."""
        if data is not None:
            self._connect(data)

    def _connect(self, data: Any) -> None:
        made: list[LoopWorker] = []

        def make(batch: int | None) -> LoopWorker:
            made.append(self._described.worker(data, batch))
            return made[-1]

        try:
            self._run = self._connect_run(make, batch_size(data))
        except BaseException:
            for worker in made:
                worker.abandon()
            raise
        self._worker = made[-1]
        weakref.finalize(self, self._worker.abandon)
        again = resumes(self._run) if self._run.ticket else "The others go on: join again with their ticket"
        self._watch = Watch(self._run, made[-1:], self._callbacks, self._progress, again)

    def _connected(self) -> tuple[Any, LoopWorker, Watch]:
        if self._run is None or self._worker is None or self._watch is None:
            raise RuntimeError("the data are not known yet: give them to start() or join(), or first to batches()")
        return self._run, self._worker, self._watch

    def _begin(self) -> tuple[Any, LoopWorker, Watch]:
        if self._has_begun:
            raise RuntimeError("a swarm trains once: start another, or join again")
        connected = self._connected()
        self._has_begun = True
        return connected

    @property
    def ticket(self) -> str | None:
        """What others join with; None for a peer that joined itself."""
        ticket: str | None = self._connected()[0].ticket
        return ticket

    @property
    def folder(self) -> str:
        """The run's folder: events, checkpoints."""
        return str(self._connected()[0].folder)

    @property
    def history(self) -> list[Event]:
        """The events of the epochs so far."""
        return self._connected()[2].history

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, for learning-rate schedulers; the job's own schedule is a factor on top of theirs."""
        return self._connected()[1].optimizer

    def run(self) -> Result:
        """Trains to the end."""
        run, worker, watch = self._begin()
        worker.compute_here()
        with watch:
            self.result = watch.result(run.run(watch.on_line))
        return self.result

    def events(self) -> Iterator[Event]:
        """Trains to the end, and gives each event as it comes. Leaving the loop leaves the swarm."""
        run, worker, watch = self._begin()
        worker.compute_here()
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        drive(run, inbox)
        end: End | None = None
        with watch:
            try:
                while not isinstance(item := inbox.get(), End):
                    watch.on_event(item)
                    yield item
                end = item
            finally:
                if end is None:
                    run.leave()
                    while not isinstance(item := inbox.get(), End):
                        watch.on_event(item)
            if end.problem is not None:
                raise end.problem
            self.result = watch.result(end.result or {})

    def batches(self, data: Any = None, *, overlap: bool = False) -> Iterator[Any]:
        """The batches of a loop of your own, until training ends, from `data` or those that `start` or `join` got.

        With `accumulate=k`, each batch comes as k micro-batches, with `step` after each; the mean of their gradients
        is taken for you, so do not divide the loss.

        With `overlap`, gradients are sent while `backward` goes on, as DistributedDataParallel does. Then each batch
        has one `backward`, and nothing changes the gradients after it; `clip_norm` of `start` and `join` clips their
        mean.
        """
        if data is not None and self._run is not None:
            raise ValueError("the data were given before: call batches() without them")
        if data is not None:
            self._connect(data)
        if overlap:
            self._connected()[1].overlap()
        run, worker, watch = self._begin()
        self._loop = Loop(worker, run, watch.on_event)
        return self._train(self._loop, watch)

    def _train(self, loop: Loop, watch: Watch) -> Iterator[Any]:
        with watch:
            try:
                yield from loop.batches()
            finally:
                if loop.result is not None:
                    self.result = watch.result(loop.result)

    def step(self, loss: Tensor | float, output: Any = None, target: Any = None, scaler: Any = None) -> None:
        """Ends a batch of a loop of your own, after `loss.backward()`.

        When this returns, the optimizer's step is made: with the mean gradient of all peers, or with this peer's own,
        as the strategy has it. `loss` is the batch's mean loss. Give output and target to have correct ones counted,
        and the GradScaler that scaled the loss, if one did: its `unscale_` and `update` are called for you.
        """
        if self._loop is None:
            raise RuntimeError("swarm.step(loss) belongs into `for batch in swarm.batches(...)`")
        self._loop.step(loss, output, target, scaler)

    def leave(self) -> None:
        """Leaves the swarm, from any thread; the others go on."""
        run, worker, _ = self._connected()
        run.leave()
        worker.abandon()

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        if self._run is not None and self.result is None:
            self.leave()
