"""How training gets on: a line that is rewritten on terminals and in notebooks, a line an epoch elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

REFRESH_SECONDS = 0.2


class Progress:
    """Prints events as they come. Accuracy is shown where `counts_correct`, which turns out with the first batches."""

    def __init__(self, counts_correct: Callable[[], bool], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._rewrites = _can_rewrite(self._stream)
        self._counts_correct = counts_correct
        self._epochs = self._n_train = self._n_test = 0
        self._shown_at = 0.0
        self._width = 0

    def __call__(self, event: dict[str, Any]) -> None:
        """Takes an event."""
        kind = event.get("event")
        if kind == "start":
            self._start(event)
        elif kind == "progress" and self._rewrites and time.monotonic() - self._shown_at >= REFRESH_SECONDS:
            self._rewrite(self._progress(event))
        elif kind == "epoch":
            self._print(self._epoch(event))
        elif kind == "rollback":
            self._print(f"training diverged ({event.get('why')}) and goes on from step {event.get('step')}")
        elif kind == "checkpoint-failed":
            self._print(f"no checkpoint could be written: {event.get('problem')}")
        elif kind == "note" and not event.get("is_routine"):
            self._print(str(event.get("text")))
        elif kind == "stop":
            self.close()

    def close(self) -> None:
        """Takes away the line that is rewritten."""
        self._rewrite("")

    def _start(self, event: dict[str, Any]) -> None:
        self._epochs, self._n_train, self._n_test = (event.get(k) or 0 for k in ("epochs", "n_train", "n_test"))
        peers = event.get("n_peers") or 1
        parts = [f"{event.get('model')}: {event.get('n_params', 0):,} parameters", f"{self._n_train:,} samples"]
        parts.append("1 peer" if peers == 1 else f"{peers} peers, {event.get('strategy')}")
        self._print(", ".join(parts))

    def _progress(self, event: dict[str, Any]) -> str:
        done = event.get("n_samples", 0)
        parts = [f"epoch {event.get('epoch')}/{self._epochs}"]
        if self._n_train:
            parts.append(f"{min(100, 100 * done // self._n_train):3d}%")
        parts += self._how_good("", event.get("loss"), event.get("accuracy"))
        rate = event.get("samples_per_s") or 0
        if rate:
            parts.append(f"{_short(rate)} samples/s")
            left = (self._epochs - event.get("epoch", 0)) * self._n_train + self._n_train - done
            parts.append(f"{_clock(max(0, left) / rate)} left")
        return "  ".join(parts)

    def _epoch(self, event: dict[str, Any]) -> str:
        parts = [f"epoch {event.get('epoch')}/{self._epochs}"]
        parts += self._how_good("train ", event.get("train_loss"), event.get("train_accuracy"))
        if self._n_test:
            parts += self._how_good("test ", event.get("test_loss"), event.get("test_accuracy"))
        parts += [f"{name} {value:.4g}" for name, value in (event.get("metrics") or {}).items() if value is not None]
        if event.get("seconds") is not None:
            parts.append(f"{event['seconds']:.1f} s")
        return "  ".join(parts)

    def _how_good(self, which: str, loss: float | None, accuracy: float | None) -> list[str]:
        parts = [] if loss is None else [f"{which}loss {loss:.4f}"]
        if accuracy is not None and self._counts_correct():
            parts.append(f"{which}accuracy {100 * accuracy:.2f}%")
        return parts

    def _rewrite(self, text: str) -> None:
        if not self._rewrites or not (text or self._width):
            return
        text = text[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
        self._stream.flush()
        self._width, self._shown_at = len(text), time.monotonic()

    def _print(self, text: str) -> None:
        self._rewrite("")
        self._stream.write(text + "\n")
        self._stream.flush()


def _can_rewrite(stream: TextIO) -> bool:
    is_notebook = type(stream).__module__.startswith("ipykernel")
    return is_notebook or bool(getattr(stream, "isatty", lambda: False)())


def _short(number: float) -> str:
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
