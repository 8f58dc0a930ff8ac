"""A gradient that is handed over in parts while the backward pass that computes it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from ._flat import Layout, Span, dense


class Give(Protocol):
    """Who takes the parts: see `give.rs`."""

    @property
    def buckets(self) -> Sequence[Span]: ...

    def __call__(self, bucket: int) -> None: ...


class _Segment(NamedTuple):
    """A part of a parameter that lies in a bucket."""

    place: int
    start: int
    stop: int


class _Seen(NamedTuple):
    """A parameter's gradient as it was when autograd had added it up."""

    grad: Tensor
    version: int


class Handover:
    """Gives the buckets of a gradient as soon as all parameters in them have theirs, in order; the last one only at the end.

    On a CPU a bucket is given in the middle of the backward pass. On a GPU it is copied to pinned memory meanwhile, and given when the pass
    was queued: the host is ahead of the device then.

    What was given cannot be taken back. So `end` refuses gradients that have changed since, and without the last bucket nobody takes a step
    with the others.
    """

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._layout, self._device = layout, device
        self._hooks: list[RemovableHandle] = []
        self._buckets: list[Span] = []
        self._segments: list[list[_Segment]] = []
        self._buckets_of: list[list[int]] = []
        self._seen: list[_Seen | None] = []
        self._missing: list[int] = []
        self._out: Tensor | None = None
        self._give: Give | None = None
        self._n_written = 0
        self._copies: list[torch.cuda.Event] = []
        self._staging: Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        self.has_repeated = False
        """Whether a parameter has had its gradient in several parts, so that nobody knows when it is final."""

    @staticmethod
    def can_be_on(device: torch.device) -> bool:
        """Whether this works with the gradients of a device."""
        return device.type in ("cpu", "cuda")

    def begin(self, out: Tensor, give: Give | None) -> None:
        """The gradient of the next backward pass goes into `out`. Without `give` it is only seen how it comes about."""
        if not self._hooks:
            for place, p in enumerate(self._layout.params):
                self._hooks.append(p.register_post_accumulate_grad_hook(partial(self._on_gradient, place)))
        if give is not None and not self._buckets:
            self._plan(give.buckets)
        self._missing = [len(segments) for segments in self._segments]
        self._seen = [None] * len(self._layout.params)
        self._out, self._give, self._n_written = out, give, 0

    def drop(self) -> None:
        """Nothing more is given of this gradient."""
        self._out = self._give = None
        self._seen, self._copies = [], []

    def close(self) -> None:
        """Lets go of the model."""
        self.drop()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def end(self) -> None:
        """The backward pass is over: writes and gives what is left of the parameters' gradients."""
        try:
            self._check()
            while self._n_written < len(self._buckets):
                self._write(self._n_written)
                self._n_written += 1
            self._give_copies()
        finally:
            self.drop()

    def _plan(self, buckets: Sequence[Span]) -> None:
        n_params = self._layout.n_params
        self._buckets = [(start, stop) for start, stop in buckets if stop <= n_params]
        self._buckets_of = [[] for _ in self._layout.params]
        for k, (start, stop) in enumerate(self._buckets):
            segments = []
            for place, (first, last) in enumerate(self._layout.spans):
                if first < stop and start < last:
                    segments.append(_Segment(place, max(start, first), min(stop, last)))
                    self._buckets_of[place].append(k)
            self._segments.append(segments)

    def _on_gradient(self, place: int, p: Tensor) -> None:
        if self._out is None:
            return
        if self._seen[place] is not None:
            self.has_repeated = True
            if self._give is not None:
                raise RuntimeError(
                    "a parameter got its gradient twice for one batch, and parts of the first are on their way: call "
                    "backward() once for each batch, or leave overlap=True out"
                )
            return
        if p.grad is None:
            return
        self._seen[place] = _Seen(p.grad, p.grad._version)
        if self._give is None:
            return
        for k in self._buckets_of[place]:
            self._missing[k] -= 1
        while self._n_written < len(self._buckets) - 1 and self._missing[self._n_written] == 0:
            self._write(self._n_written)
            if self._device.type == "cpu":
                self._give(self._n_written)
            self._n_written += 1

    def _check(self) -> None:
        for p, seen in zip(self._layout.params, self._seen, strict=True):
            if seen is not None and (p.grad is not seen.grad or seen.grad._version != seen.version):
                raise RuntimeError(
                    "gradients were changed after backward(), and parts of them are on their way already: with "
                    "overlap=True clip them by clip_norm=, and change them in no other way, or leave overlap out"
                )

    def _write(self, bucket: int) -> None:
        """Writes a bucket; on a GPU, the device has yet to do it."""
        assert self._out is not None
        if self._device.type == "cpu":
            for segment in self._segments[bucket]:
                self._out[segment.start : segment.stop].copy_(self._part(segment))
            return
        if self._stream is None or self._staging is None:
            self._stream = torch.cuda.Stream(self._device)
            self._staging = torch.empty(self._layout.n_params, pin_memory=True)
        start, stop = self._buckets[bucket]
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            part = torch.cat([self._part(segment) for segment in self._segments[bucket]])
            self._staging[start:stop].copy_(part, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._stream)
        for segment in self._segments[bucket]:
            grad = self._layout.params[segment.place].grad
            if grad is not None:
                grad.record_stream(self._stream)
        self._copies.append(copied)

    def _part(self, segment: _Segment) -> Tensor:
        p, first = self._layout.params[segment.place], self._layout.spans[segment.place][0]
        if p.grad is None:
            return torch.zeros(segment.stop - segment.start, device=self._device)
        numbers = dense(p.grad).reshape(-1)[segment.start - first : segment.stop - first]
        return numbers if self._device.type == "cpu" else numbers.float()

    def _give_copies(self) -> None:
        """Gives what was copied from a GPU, as it arrives."""
        for k, copied in enumerate(self._copies):
            assert self._out is not None and self._give is not None and self._staging is not None
            copied.synchronize()
            start, stop = self._buckets[k]
            self._out[start:stop].copy_(self._staging[start:stop])
            self._give(k)
