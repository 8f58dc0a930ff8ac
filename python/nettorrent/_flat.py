"""A model as one flat vector of f32 numbers: trained parameters first, then everything else that has to travel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

Span = tuple[int, int]


def floats(view: memoryview) -> Tensor:
    """The f32 numbers behind a memory view, without a copy."""
    return torch.frombuffer(view, dtype=torch.float32) if view.nbytes else torch.empty(0)


def integers(view: memoryview) -> Tensor:
    """The i64 numbers behind a memory view, without a copy."""
    return torch.frombuffer(view, dtype=torch.int64) if view.nbytes else torch.empty(0, dtype=torch.int64)


def spans_of(tensors: Iterable[Tensor], start: int = 0) -> list[Span]:
    """Where each tensor lies if they follow one another from `start`."""
    spans = []
    for tensor in tensors:
        spans.append((start, start + tensor.numel()))
        start += tensor.numel()
    return spans


def gather(out: Tensor, spans: Sequence[Span], tensors: Sequence[Tensor | None]) -> None:
    """Writes tensors into their spans of a CPU vector, zeros for None. From a device it is one transfer."""
    if not any(tensor is not None and tensor.device.type != "cpu" for tensor in tensors):
        for (start, stop), tensor in zip(spans, tensors, strict=True):
            if tensor is None:
                out[start:stop].zero_()
            else:
                out[start:stop].view(tensor.shape).copy_(dense(tensor))
        return
    device = next(tensor.device for tensor in tensors if tensor is not None and tensor.device.type != "cpu")
    parts = [
        torch.zeros(stop - start, device=device)
        if tensor is None
        else dense(tensor).reshape(-1).to(device, torch.float32)
        for (start, stop), tensor in zip(spans, tensors, strict=True)
    ]
    out[spans[0][0] : spans[-1][1]].copy_(torch.cat(parts))


def scatter(source: Tensor, spans: Sequence[Span], tensors: Sequence[Tensor]) -> None:
    """Writes spans of a CPU vector into tensors, rounded for integers. To a device it is one transfer."""
    if not tensors:
        return
    first, last = spans[0][0], spans[-1][1]
    part = source[first:last]
    device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), None)
    if device is not None:
        part = part.to(device)
    sources = [
        _as_stored(part[start - first : stop - first], tensor)
        for (start, stop), tensor in zip(spans, tensors, strict=True)
    ]
    with torch.no_grad():
        torch._foreach_copy_(list(tensors), sources)


def is_exact(dtype: torch.dtype) -> bool:
    """Whether numbers of this kind are f32 numbers too."""
    return dtype in (torch.float32, torch.bfloat16, torch.float16)


def _in_one(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])


def _as_stored(numbers: Tensor, like: Tensor) -> Tensor:
    return (numbers if like.is_floating_point() else numbers.round()).view(like.shape)


def dense(tensor: Tensor) -> Tensor:
    """A tensor without its history, and with all its zeros."""
    tensor = tensor.detach()
    return tensor.todense() if tensor.layout != torch.strided else tensor


def kind_of(tensor: Tensor) -> tuple[torch.dtype, torch.Size, torch.device]:
    """What tensors have in common that can be copied to one another as they are."""
    return tensor.dtype, tensor.shape, tensor.device


def copy_each(to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    """Copies tensors into others like them, on a GPU with one launch for each type of number."""
    alike: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for k, tensor in enumerate(to):
        alike.setdefault((tensor.dtype, tensor.device), []).append(k)
    with torch.no_grad():
        for places in alike.values():
            torch._foreach_copy_([to[k] for k in places], [source[k] for k in places])


def ask(numbers: Tensor) -> Callable[[], list[float]]:
    """Asks a device for numbers; what this gives waits for them, and not for what is launched later."""
    if numbers.device.type != "cuda":
        return numbers.tolist
    on_host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    on_host.copy_(numbers, non_blocking=True)
    has_come = torch.cuda.Event()
    has_come.record()

    def read() -> list[float]:
        has_come.synchronize()
        told: list[float] = on_host.tolist()
        return told

    return read


class Layout:
    """Which of a model's tensors lie where in the flat vector.

    Trained parameters come first. Then come the persistent buffers, such as batch norm's running statistics, and
    frozen parameters. Buffers that are not persistent are left out: by PyTorch's definition they are no part of a
    model's state.
    """

    def __init__(self, model: nn.Module, trained: Iterable[Tensor] | None = None) -> None:
        wanted = None if trained is None else {id(p) for p in trained}
        self.params: list[Tensor] = []
        self.frozen: list[Tensor] = []
        self._param_names: list[str] = []
        self._frozen_names: list[str] = []
        for name, p in model.named_parameters():
            _check(name, p)
            is_trained = p.requires_grad and (wanted is None or id(p) in wanted)
            (self.params if is_trained else self.frozen).append(p)
            (self._param_names if is_trained else self._frozen_names).append(name)
        self._buffers = _persistent_buffers(model)
        self.n_params = sum(p.numel() for p in self.params)
        if self.n_params == 0:
            raise ValueError(
                "the model has no parameter to train: set requires_grad on some of them, and give them to the optimizer"
            )
        self.spans = spans_of(self.params)
        self._rest_spans = spans_of(self.buffers() + self.frozen, self.n_params)
        self.n_values = self._rest_spans[-1][1] if self._rest_spans else self.n_params

    def buffers(self) -> list[Tensor]:
        """The buffers as the modules hold them now: a forward pass may put new tensors in their places."""
        held = (module._buffers[key] for _, module, key in self._buffers)
        return [buffer for buffer in held if buffer is not None]

    def tensors(self) -> list[tuple[str, list[int], str]]:
        """Name, shape and kind of each tensor, in the order of the flat vector."""
        names = [name for name, _, _ in self._buffers]
        kinds = [(name, p, "parameter") for name, p in zip(self._param_names, self.params, strict=True)]
        kinds += [(name, buffer, "buffer") for name, buffer in zip(names, self.buffers(), strict=True)]
        kinds += [(name, p, "frozen") for name, p in zip(self._frozen_names, self.frozen, strict=True)]
        return [(name, list(tensor.shape), kind) for name, tensor, kind in kinds]

    def load(self, values: Tensor) -> None:
        """Puts a flat vector into the model."""
        scatter(values, self.spans, self.params)
        scatter(values, self._rest_spans, self.buffers() + self.frozen)

    def load_buffers(self, values: Tensor) -> None:
        """Puts the buffers of a flat vector into the model."""
        buffers = self.buffers()
        scatter(values, self._rest_spans[: len(buffers)], buffers)

    def store(self, values: Tensor) -> None:
        """Writes the model as a flat vector."""
        self.store_params(values)
        rest = self.buffers() + self.frozen
        if rest:
            gather(values, self._rest_spans, rest)

    def store_params(self, values: Tensor) -> None:
        """Writes the trained parameters only."""
        gather(values, self.spans, self.params)

    def store_gradient(self, out: Tensor) -> None:
        """Writes the parameters' gradients."""
        gather(out, self.spans, [p.grad for p in self.params])

    def store_lost(self, out: Tensor, before: Sequence[Tensor]) -> None:
        """Writes what the batch took off the buffers since `before`, and nothing for what is frozen."""
        buffers = self.buffers()
        n_moving = self._rest_spans[len(buffers) - 1][1] if buffers else self.n_params
        if buffers:
            out[self.n_params : n_moving].copy_(_in_one(before) - _in_one(buffers))
        out[n_moving:].zero_()

    def load_gradient(self, gradient: Tensor) -> None:
        """Gives each parameter its part of a flat gradient; if it can be, as a view of that."""
        if all(p.device.type == "cpu" and p.dtype == torch.float32 and p.is_contiguous() for p in self.params):
            grads = [gradient[start:stop].view(p.shape) for (start, stop), p in zip(self.spans, self.params, strict=True)]
        else:
            grads = [torch.empty_like(p) for p in self.params]
            scatter(gradient, self.spans, grads)
        for p, grad in zip(self.params, grads, strict=True):
            p.grad = grad

    def versions(self) -> list[int]:
        """Counts how often each parameter was changed: as long as these stay, so do the parameters."""
        return [p._version for p in (*self.params, *self.frozen)]

    @property
    def is_exact(self) -> bool:
        """Whether parameters come back from a flat vector as they went there."""
        return all(is_exact(p.dtype) for p in (*self.params, *self.frozen))

    def drop_gradient(self) -> None:
        """Forgets all gradients."""
        for p in (*self.params, *self.frozen):
            p.grad = None


def _check(name: str, p: Tensor) -> None:
    if is_lazy(p):
        raise ValueError(
            f"`{name}` has no shape yet: pass one batch through the model first, so that its lazy layers are made"
        )
    if p.is_complex():
        raise ValueError(
            f"`{name}` is complex, which cannot be exchanged: keep torch.view_as_real of it as the parameter"
        )


def _persistent_buffers(model: nn.Module) -> list[tuple[str, nn.Module, str]]:
    found, seen = [], set()
    for prefix, module in model.named_modules():
        for key, buffer in module._buffers.items():
            if buffer is None or key in module._non_persistent_buffers_set or id(buffer) in seen:
                continue
            name = f"{prefix}.{key}" if prefix else key
            _check(name, buffer)
            seen.add(id(buffer))
            found.append((name, module, key))
    return found
