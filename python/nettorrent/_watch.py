"""Following a run: its epochs, its progress, and what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ._flat import floats
from ._progress import Progress
from ._worker import TorchWorker

Event = dict[str, Any]
Callback = Callable[[Event], None]


@dataclass
class Result:
    """How training ended. The model that was given holds the final values."""

    ending: str
    folder: str
    epoch: int
    step: int
    checkpoint: str | None
    history: list[Event] = field(repr=False)
    """The events of the epochs, in order."""
    loss: float | None
    """The mean loss of the last epoch's test, or of its training where there is no test."""
    accuracy: float | None
    """The share of samples that were classified correctly there; None if this is no classification."""
    metrics: dict[str, float]


class Watch:
    """Follows a run: keeps its epochs, shows progress, tells callbacks, puts the final values into the model.

    `again` says how to go on with a run that was stopped.
    """

    def __init__(
        self, run: Any, workers: Sequence[TorchWorker], callbacks: Iterable[Callback], progress: bool, again: str
    ) -> None:
        self.history: list[Event] = []
        worker = workers[0]
        self._run, self._workers, self._worker, self._again = run, workers, worker, again
        # Nothing here refers back to the watch: model and data are free as soon as the run is over, and not when garbage is collected.
        self._progress = Progress(lambda: worker.counts_correct) if progress else None
        shown: list[Callback] = [self._progress] if self._progress else []
        self._callbacks: list[Callback] = [*shown, *callbacks]
        self._has_said_how_to_go_on = False

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._progress:
            self._progress.close()
        if kind is not None:
            self._close_workers()
        if kind is KeyboardInterrupt:
            self._say_how_to_go_on(sys.stderr)

    def _close_workers(self) -> None:
        for worker in self._workers:
            worker.close()

    def _say_how_to_go_on(self, stream: TextIO | None) -> None:
        steps = sorted(Path(self._run.folder, "checkpoints").glob("step-*"))
        if steps and not self._has_said_how_to_go_on:
            self._has_said_how_to_go_on = True
            print(f"Stopped at step {int(steps[-1].name[5:])}; nothing is lost. {self._again}", file=stream, flush=True)

    def on_line(self, line: str) -> None:
        self.on_event(json.loads(line))

    def on_event(self, event: Event) -> None:
        if event.get("event") == "epoch":
            self.history.append(event)
        for tell in self._callbacks:
            tell(event)

    def result(self, end: Mapping[str, Any]) -> Result:
        """How it ended; the workers compute no more, and the model has the final values."""
        self._close_workers()
        run, checkpoint = self._run, end.get("checkpoint")
        if checkpoint is not None:
            self._worker.load(floats(memoryview(run.read_checkpoint(checkpoint))))
        if end["ending"] != "finished" and self._progress:
            self._say_how_to_go_on(None)
        last = self.history[-1] if self.history else {}
        kind = "test" if self._worker.n_test else "train"
        return Result(
            ending=end["ending"],
            folder=str(run.folder),
            epoch=end.get("epoch", last.get("epoch", 0)),
            step=end.get("step", last.get("step", 0)),
            checkpoint=checkpoint,
            history=self.history,
            loss=last.get(f"{kind}_loss"),
            accuracy=last.get(f"{kind}_accuracy") if self._worker.counts_correct else None,
            metrics=dict(last.get("metrics") or {}),
        )
