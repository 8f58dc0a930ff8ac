"""Hugging Face's Trainer across machines: `SwarmTrainer` in place of `transformers.Trainer`."""

from __future__ import annotations

import math
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import TrainOutput

from ._anywhere import train

_SCHEDULES = {"constant": "constant", "constant_with_warmup": "constant", "cosine": "cosine"}


class SwarmTrainer(Trainer):
    """A Trainer whose `train` is done by a swarm.

    `swarm` holds options of `nettorrent.fit` (`peers`, `strategy`, `options`) or, with `wait_for`, of
    `nettorrent.start`; with `ticket`, this machine joins a swarm. Model, data, collator, loss, optimizer, clipping,
    bf16 and gradient accumulation are the Trainer's. A batch, `per_device_train_batch_size` times the accumulation
    steps, is that of the whole swarm. After training, `evaluate`, `predict` and `save_model` work as ever.
    """

    def __init__(
        self, *args: Any, swarm: dict[str, Any] | None = None, ticket: str | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        if self.args.fp16:
            raise ValueError("fp16 needs a loss scale for each peer, which is not supported: use bf16=True")
        self._swarm = {**(swarm or {}), "ticket": ticket}
        self.remove_callback(ProgressCallback)
        self.remove_callback(PrinterCallback)

    def train(self, resume_from_checkpoint: Any = None, *_: Any, **__: Any) -> TrainOutput:
        """Trains with the swarm, with a run's folder in `output_dir`. What it resumes from is such a folder."""
        if resume_from_checkpoint is True:
            raise ValueError("say which run to resume: give the folder that was printed when it stopped")
        loader: Any = self.get_train_dataloader()
        model: Any = self.model
        args = self.args
        has_tests = self.eval_dataset is not None and not isinstance(self.eval_dataset, dict)
        tests: Any = self.get_eval_dataloader() if has_tests else None
        n_batches = math.ceil(
            len(loader.dataset) / (args.per_device_train_batch_size * args.gradient_accumulation_steps)
        )
        self.state.max_steps = int(n_batches * args.num_train_epochs)
        self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
        result = train(
            model,
            data=loader.dataset,
            test=None if tests is None else tests.dataset,
            collate=loader.collate_fn,
            step=self._loss_of,
            optimizer=self.create_optimizer(),
            schedule=self._schedule(n_batches),
            epochs=math.ceil(args.num_train_epochs),
            batch=args.per_device_train_batch_size * args.gradient_accumulation_steps,
            accumulate=args.gradient_accumulation_steps,
            clip_norm=args.max_grad_norm or None,
            autocast=torch.bfloat16 if args.bf16 else None,
            seed=args.seed,
            device=args.device,
            out=None if resume_from_checkpoint else Path(args.output_dir or ".", time.strftime("swarm-%Y%m%d-%H%M%S")),
            callbacks=[self._on_event],
            resume=resume_from_checkpoint or None,
            progress=not args.disable_tqdm,
            **self._swarm,
        )
        self.control = self.callback_handler.on_train_end(args, self.state, self.control)
        loss = result.history[-1].get("train_loss", math.nan) if result.history else math.nan
        return TrainOutput(result.step, loss, {"train_loss": loss, "epoch": result.epoch})

    def _loss_of(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, Any]:
        loss, output = self.compute_loss(model, dict(batch), return_outputs=True)
        return loss, output.get("logits") if isinstance(output, dict) else None

    def _schedule(self, n_batches: int) -> dict[str, Any]:
        wanted = str(getattr(self.args.lr_scheduler_type, "value", self.args.lr_scheduler_type))
        if wanted not in _SCHEDULES:
            warnings.warn(f"a swarm has no `{wanted}` learning rate: it falls along a cosine instead", stacklevel=3)
        warmup = self.args.get_warmup_steps(self.state.max_steps) / n_batches
        return {"kind": _SCHEDULES.get(wanted, "cosine"), "warmup": warmup}

    def _on_event(self, event: dict[str, Any]) -> None:
        if event.get("event") != "epoch":
            return
        self.state.epoch, self.state.global_step = float(event["epoch"]), event.get("step", 0)
        names = {"loss": "train_loss", "eval_loss": "test_loss", "eval_accuracy": "test_accuracy"}
        self.log({name: event[key] for name, key in names.items() if event.get(key) is not None})
