"""What users call: `fit` on this machine, `start` and `join` across machines."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ._data import Collate, as_samples, batch_size
from ._job import DEFAULT_BATCH, batch_in, check_optimizer, describe, make_job
from ._loop import LoopWorker
from ._objective import Loss, Metric, StepFunction
from ._optimizer import OptimizerLike, replica
from ._swarm import Described, MakeWorker, Swarm, resumes
from ._watch import Callback, Result, Watch
from ._worker import TorchWorker

Device = torch.device | str


def fit(
    model: nn.Module,
    loss: Loss | None = None,
    data: Any = None,
    test: Any = None,
    *,
    optimizer: OptimizerLike = "adamw",
    lr: float | None = None,
    epochs: int = 10,
    batch: int | None = None,
    strategy: str = "ring-all-reduce",
    options: Mapping[str, Any] | None = None,
    peers: int = 1,
    seed: int = 1,
    schedule: str | Mapping[str, Any] | None = None,
    step: StepFunction | None = None,
    metrics: Mapping[str, Metric] | None = None,
    device: Device | Sequence[Device] | None = None,
    autocast: torch.dtype | None = None,
    clip_norm: float | None = None,
    accumulate: int = 1,
    compile: bool = False,
    collate: Collate | None = None,
    samples_per_epoch: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    job: Mapping[str, Any] | None = None,
) -> Result:
    """Trains a model in this process, and leaves the final values in it.

    `loss(output, target)` gives the mean loss of a batch of (inputs, target); without it the model gives its loss
    itself, or `step(model, batch)` does. `data` and `test` are data sets, DataLoaders (whose own batches and order are
    not used), or tensors such as `(inputs, targets)`. `optimizer` is one of `torch.optim` with its parameter groups, a
    function of the parameters, or a name with `lr`; its state begins afresh. With `peers` above 1, so many replicas
    train together by `strategy` with its `options`, as they would on several machines. `job` sets any other field of
    the job, and `resume` is the folder of a run to go on with.
    """
    batch = batch or batch_size(data) or DEFAULT_BATCH
    data = as_samples(_given(data), collate, samples_per_epoch)
    replicas = [(model, optimizer)] + [replica(model, optimizer) for _ in range(peers - 1)]
    workers = [
        TorchWorker(
            its_model,
            loss,
            data,
            test,
            its_optimizer,
            lr,
            step=step,
            metrics=metrics,
            batch=batch,
            device=_device_of(device, k),
            autocast=autocast,
            clip_norm=clip_norm,
            accumulate=accumulate,
            compile=compile,
            collate=collate,
            samples_per_epoch=samples_per_epoch,
        )
        for k, (its_model, its_optimizer) in enumerate(replicas)
    ]
    toml = make_job(
        _name_of(model),
        _optimizer_of(workers[0]),
        epochs=epochs,
        batch=batch,
        seed=seed,
        strategy=strategy,
        options=options,
        schedule=schedule,
        more=job,
    )
    try:
        run = _core().Run.local(toml, workers, _options(out=out, resume=resume))
    except BaseException:
        for worker in workers:
            worker.close()
        raise
    with Watch(run, workers, callbacks, progress, resumes(run)) as watch:
        return watch.result(run.run(watch.on_line))


def start(
    model: nn.Module,
    loss: Loss | None = None,
    data: Any = None,
    test: Any = None,
    *,
    optimizer: OptimizerLike = "adamw",
    lr: float | None = None,
    epochs: int = 10,
    batch: int | None = None,
    strategy: str = "ring-all-reduce",
    options: Mapping[str, Any] | None = None,
    seed: int = 1,
    schedule: str | Mapping[str, Any] | None = None,
    wait_for: int = 1,
    listen: str | None = None,
    address: str | None = None,
    discover: bool | None = None,
    encryption: bool | None = None,
    link: str | None = None,
    deadline: float | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    job: Mapping[str, Any] | None = None,
    **worker: Any,
) -> Swarm:
    """Starts a swarm that others join with its ticket. Training begins with `Swarm.run`, `events` or `batches`.

    Training waits until `wait_for` peers are there, this one counted. Others reach it at `listen`, such as
    "0.0.0.0:7000" (any free port if not given), or at `address` where that is another; with `discover`, peers of the
    same local network find each other. `link`, such as "100mbit", slows the network down for experiments; `deadline` is
    after how many seconds a silent peer is given up. See `fit` for what describes the training, and `Swarm` for a loop of your own. Further options are those of `fit` for the
    computation (`step`, `metrics`, `device`, `autocast`, `clip_norm`, `accumulate`, `compile`, `collate`,
    `samples_per_epoch`), and `evaluate` for a loop of your own.
    """
    network = {"listen": listen, "address": address, "discover": discover, "encryption": encryption, "link": link}
    settings = _options(out=out, resume=resume, wait_for=wait_for, **network)
    job = {**(job or {}), "swarm": {"deadline": deadline, **(job or {}).get("swarm", {})}}

    def connect(make: MakeWorker, default_batch: int | None) -> Any:
        size = batch or default_batch or DEFAULT_BATCH
        worker = make(size)
        toml = make_job(
            _name_of(model),
            _optimizer_of(worker),
            epochs=epochs,
            batch=size,
            seed=seed,
            strategy=strategy,
            options=options,
            schedule=schedule,
            more=job,
        )
        return _core().Run.start(toml, worker, settings)

    described = Described(model, loss, test, optimizer, lr, worker)
    return Swarm(described, connect, data, callbacks, progress)


def join(
    ticket: str,
    model: nn.Module,
    loss: Loss | None = None,
    data: Any = None,
    test: Any = None,
    *,
    optimizer: OptimizerLike = "adamw",
    lr: float | None = None,
    listen: str | None = None,
    address: str | None = None,
    discover: bool | None = None,
    encryption: bool | None = None,
    link: str | None = None,
    out: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    **worker: Any,
) -> Swarm:
    """Joins the swarm of a ticket. Model, data and optimizer have to be those of the one who started it.

    What all peers share (epochs, batch, seed, strategy, schedule) comes from the swarm, and so do the model's values.
    """
    settings = _options(
        out=out, listen=listen, address=address, discover=discover, encryption=encryption, link=link
    )

    def connect(make: MakeWorker, default_batch: int | None) -> Any:
        def make_like(job: str) -> LoopWorker:
            worker = make(batch_in(job))
            check_optimizer(_optimizer_of(worker), job)
            return worker

        return _core().Run.join(ticket, make_like, settings)

    described = Described(model, loss, test, optimizer, lr, worker)
    return Swarm(described, connect, data, callbacks, progress)


def _core() -> ModuleType:
    """The part in Rust. It is loaded when it is needed, so that workers can be used without it."""
    return importlib.import_module("nettorrent._core")


def _options(**settings: Any) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in settings.items() if value is not None
    }


def _given(data: Any) -> Any:
    if data is None:
        raise ValueError("there is nothing to train on: give data, such as (inputs, targets) or a Dataset")
    return data


def _name_of(model: nn.Module) -> str:
    return type(model).__name__


def _optimizer_of(worker: TorchWorker) -> dict[str, Any]:
    return describe(worker.optimizer, worker.n_optimizer_vectors)


def _device_of(device: Device | Sequence[Device] | None, peer: int) -> Device | None:
    """The device of a local peer: the one that was given, or one GPU after the other."""
    if device is None:
        n_gpus = torch.cuda.device_count()
        return torch.device("cuda", peer % n_gpus) if n_gpus else None
    return device if isinstance(device, (str, torch.device)) else device[peer % len(device)]
