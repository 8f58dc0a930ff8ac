"""The state of any PyTorch optimizer as vectors as long as the parameters, and back."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ._flat import gather, is_exact, scatter, spans_of

MOST_VECTORS = 8
DEFAULT_LR = 1e-3

OptimizerLike = Optimizer | Callable[..., Optimizer] | str


def make_optimizer(what: OptimizerLike, model: nn.Module, lr: float | None = None) -> Optimizer:
    """An optimizer from an instance, a function of the parameters, or the name of one in `torch.optim`."""
    if isinstance(what, Optimizer):
        if lr is not None:
            raise ValueError("lr is given twice: the optimizer has its own. Give lr only with the name of an optimizer")
        return what
    params = [p for p in model.parameters() if p.requires_grad]
    if isinstance(what, str):
        kinds = {name.lower(): kind for name, kind in vars(torch.optim).items() if _is_optimizer(kind)}
        if what.lower() not in kinds:
            raise ValueError(f"there is no optimizer `{what}`; there are {', '.join(sorted(kinds))}")
        by_name: Optimizer = kinds[what.lower()](params, lr=DEFAULT_LR if lr is None else lr)
        return by_name
    made = what(params) if lr is None else what(params, lr=lr)
    if not isinstance(made, Optimizer):
        raise TypeError(f"optimizer must give a torch.optim.Optimizer, and it gave {type(made).__name__}")
    return made


def _is_optimizer(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer


def trained_by(optimizer: Optimizer, model: nn.Module) -> list[nn.Parameter]:
    """The optimizer's parameters; all of them have to be the model's."""
    known = {id(p) for p in model.parameters()}
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if any(id(p) not in known for p in params):
        raise ValueError(
            "the optimizer has parameters that are not the model's: make it from model.parameters(), after the model "
            "has its final form, and put modules that are trained along (such as a loss with weights) into the model"
        )
    return params


def replica(model: nn.Module, optimizer: OptimizerLike) -> tuple[nn.Module, OptimizerLike]:
    """A copy of a model, and of its optimizer for the copy's parameters."""
    model, twin = copy.deepcopy((model, optimizer))
    if isinstance(optimizer, Optimizer):
        _complete(twin, optimizer)
    return model, twin


def _complete(twin: Any, optimizer: Optimizer) -> None:
    """Gives a copy the attributes that optimizers do not copy. Methods that schedulers put there are the original's."""
    for name, value in vars(optimizer).items():
        if not callable(value):
            vars(twin).setdefault(name, value)


@dataclass(frozen=True)
class _Number:
    """A tensor or Python number of the state: what it is like, so that it can be made anew."""

    like: Tensor | int | float
    device: torch.device | None

    @classmethod
    def of(cls, value: Tensor | int | float) -> _Number:
        return cls(value.to("meta"), value.device) if isinstance(value, Tensor) else cls(value, None)

    @property
    def size(self) -> int:
        return self.like.numel() if isinstance(self.like, Tensor) else 1

    def new(self) -> Tensor:
        like = torch.as_tensor(self.like)
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=self.device)

    def from_floats(self, numbers: Tensor, old: Any) -> Any:
        if not isinstance(self.like, Tensor):
            return type(self.like)(round(numbers.item()) if isinstance(self.like, int) else numbers.item())
        tensor = old if isinstance(old, Tensor) else self.new()
        scatter(numbers, [(0, tensor.numel())], [tensor])
        return tensor


@dataclass(frozen=True)
class _Extra:
    """A number, or a few, that are not as many as a parameter has: of a parameter's state or of a parameter group."""

    owner: int
    of_group: bool
    name: str
    number: _Number
    default: Tensor


class OptimizerState:
    """Packs an optimizer's state into f32 vectors as long as the parameters, and restores it.

    There is one vector for each name under which every parameter has a tensor of its own shape (`exp_avg`,
    `momentum_buffer`), laid out like the parameters. Step counters are not packed: they are the number of steps. All
    other numbers follow one another in further vectors, filled up with zeros.
    """

    def __init__(self, optimizer: Optimizer, params: Sequence[Tensor]) -> None:
        self.optimizer, self.params = optimizer, list(params)
        self._spans = spans_of(self.params)
        self._n_params = self._spans[-1][1]
        self._initial = _initial_state(optimizer)
        self._initial_groups = [dict(group) for group in optimizer.param_groups]
        self._counters: list[tuple[int, _Number]] = []
        self._vectors: dict[str, dict[int, _Number]] = {}
        self._extras: list[_Extra] = []
        self._nones: list[tuple[int, str]] = []
        self._start_afresh()
        self._discover()
        n_extra = sum(extra.number.size for extra in self._extras)
        self.n_vectors = len(self._vectors) + math.ceil(n_extra / self._n_params)
        if self.n_vectors > MOST_VECTORS:
            raise ValueError(
                f"{type(optimizer).__name__} keeps {self.n_vectors} numbers for each parameter, and at most "
                f"{MOST_VECTORS} can travel: choose another optimizer"
            )

    def _discover(self) -> None:
        twin = _after_one_step(self.optimizer)
        places = {id(p): k for k, p in enumerate(self.params)}
        found = []
        pairs = zip(self.optimizer.param_groups, twin.param_groups, strict=True)
        for k, (group, stepped) in enumerate(pairs):
            for p, its_twin in zip(group["params"], stepped["params"], strict=True):
                if id(p) in places:
                    found += [(places[id(p)], name, value) for name, value in twin.state.get(its_twin, {}).items()]
            for name, value in stepped.items():
                if _is_number(value) and value != group.get(name):
                    self._extras.append(_extra(k, True, name, value))
        # A parameter without dimensions is like a counter: what the others call a vector tells them apart.
        for place, name, value in sorted(found, key=lambda entry: (self.params[entry[0]].ndim == 0, entry[0])):
            self._sort_in(place, name, value)

    def _sort_in(self, place: int, name: str, value: Any) -> None:
        if value is None:
            self._nones.append((place, name))
        elif name == "step" and _is_number(value) and float(value) == 1.0:
            self._counters.append((place, _Number.of(value)))
        elif (
            isinstance(value, Tensor)
            and value.shape == self.params[place].shape
            and (value.ndim or name in self._vectors)
        ):
            self._vectors.setdefault(name, {})[place] = _Number.of(value)
        elif isinstance(value, (Tensor, int, float)):
            self._extras.append(_extra(place, False, name, value))
        else:
            kind = type(self.optimizer).__name__
            raise TypeError(
                f"{kind} keeps a {type(value).__name__} as `{name}`, which cannot travel: choose another optimizer"
            )

    def _start_afresh(self) -> None:
        self.optimizer.state.clear()
        for p, state in self._initial.items():
            self.optimizer.state[p] = copy.deepcopy(state)
        for extra in self._extras:
            if extra.of_group:
                group, initial = self.optimizer.param_groups[extra.owner], self._initial_groups[extra.owner]
                group.pop(extra.name, None)
                group.update({extra.name: initial[extra.name]} if extra.name in initial else {})

    @property
    def is_exact(self) -> bool:
        """Whether state comes back from the vectors as it went there."""
        numbers = [number for numbers in self._vectors.values() for number in numbers.values()]
        return not self._extras and all(isinstance(n.like, Tensor) and is_exact(n.like.dtype) for n in numbers)

    def restore(self, vectors: Sequence[Tensor], n_steps: int) -> None:
        """Puts packed state into the optimizer. No steps and only zeros make it a fresh one."""
        if n_steps == 0 and not any(vector.any() for vector in vectors):
            self._start_afresh()
            return
        for (name, numbers), vector in zip(self._vectors.items(), vectors):
            tensors = [self._tensor(place, name, number) for place, number in sorted(numbers.items())]
            scatter(vector, [self._spans[place] for place in sorted(numbers)], tensors)
        for place, number in self._counters:
            if isinstance(number.like, Tensor):
                self._tensor(place, "step", number).fill_(n_steps)
            else:
                self.optimizer.state[self.params[place]]["step"] = type(number.like)(n_steps)
        for place, name in self._nones:
            self.optimizer.state[self.params[place]].setdefault(name, None)
        self._restore_extras(vectors)

    def _tensor(self, place: int, name: str, number: _Number) -> Tensor:
        state = self.optimizer.state[self.params[place]]
        if not isinstance(state.get(name), Tensor):
            state[name] = number.new()
        tensor: Tensor = state[name]
        return tensor

    def _restore_extras(self, vectors: Sequence[Tensor]) -> None:
        if not self._extras:
            return
        numbers, at = torch.cat(list(vectors[len(self._vectors) :])), 0
        for extra in self._extras:
            owner = self._owner(extra)
            owner[extra.name] = extra.number.from_floats(numbers[at : at + extra.number.size], owner.get(extra.name))
            at += extra.number.size

    def _owner(self, extra: _Extra) -> dict[str, Any]:
        groups = self.optimizer.param_groups
        return groups[extra.owner] if extra.of_group else self.optimizer.state[self.params[extra.owner]]

    def pack(self, vectors: Sequence[Tensor], n_steps: int) -> None:
        """Writes the state into vectors. Parameters that never had a gradient have no state yet, and give zeros."""
        state = self.optimizer.state
        for name, vector in zip(self._vectors, vectors):
            gather(vector, self._spans, [state.get(p, {}).get(name) for p in self.params])
        rest = vectors[len(self._vectors) :]
        is_fresh = n_steps == 0 and not state
        numbers = [] if is_fresh else [self._floats_of(extra) for extra in self._extras]
        padding = len(rest) * self._n_params - sum(map(len, numbers))
        packed = torch.cat([*numbers, torch.zeros(padding)])
        for vector, part in zip(rest, packed.split(self._n_params)):
            vector.copy_(part)

    def _floats_of(self, extra: _Extra) -> Tensor:
        value = self._owner(extra).get(extra.name)
        return extra.default if value is None else _as_floats(value)

    @contextlib.contextmanager
    def scaled_lr(self, factor: float) -> Iterator[None]:
        """Multiplies each group's learning rate for as long as this lasts."""
        groups = self.optimizer.param_groups
        before = [group.get("lr") for group in groups]
        try:
            for group, lr in zip(groups, before, strict=True):
                if lr is not None and factor != 1.0:
                    group["lr"] = lr * factor
            yield
        finally:
            for group, lr in zip(groups, before, strict=True):
                if lr is not None:
                    group["lr"] = lr


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, Tensor) and value.numel() == 1)


def _extra(owner: int, of_group: bool, name: str, value: Tensor | int | float) -> _Extra:
    return _Extra(owner, of_group, name, _Number.of(value), _as_floats(value))


def _as_floats(value: Tensor | int | float) -> Tensor:
    return torch.as_tensor(value).detach().to("cpu", torch.float32, copy=True).reshape(-1)


def _initial_state(optimizer: Optimizer) -> dict[Tensor, dict[str, Any]]:
    """The state before the first step; some optimizers have one. That of earlier steps does not count."""
    if not optimizer.state:
        return {}
    kind = type(optimizer)
    accepted = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    try:
        return dict(kind([dict(group) for group in optimizer.param_groups], **settings).state)
    except Exception as problem:
        raise ValueError(f"this {kind.__name__} has made steps before: give a new one, or its class") from problem


def _after_one_step(optimizer: Optimizer) -> Optimizer:
    """A copy that has made a step with a gradient of zeros: its state shows what there is to pack."""
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "LBFGS evaluates the loss several times a step, which cannot be done across peers: use AdamW or SGD"
        )
    twin = copy.deepcopy(optimizer)
    _complete(twin, optimizer)
    for group in twin.param_groups:
        for p in group["params"]:
            p.grad = torch.zeros_like(p)
    try:
        twin.step()
    except Exception as problem:
        raise TypeError(
            f"{kind} could not make a trial step with a gradient of zeros ({problem}): choose another optimizer"
        ) from problem
    return twin
