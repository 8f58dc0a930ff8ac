"""The job of a swarm as TOML: what all of its peers have in common."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

DEFAULT_BATCH = 32

_LEAST_LR = 1e-30

# Those that are built on others come first.
_KINDS: tuple[tuple[type[Optimizer], str], ...] = (
    (torch.optim.SGD, "sgd"),
    (torch.optim.ASGD, "sgd"),
    (torch.optim.Adagrad, "adagrad"),
    (torch.optim.RMSprop, "rmsprop"),
    (torch.optim.AdamW, "adamw"),
    (torch.optim.Adam, "adam"),
)


def make_job(
    model_name: str,
    optimizer: Mapping[str, Any],
    *,
    epochs: int,
    batch: int,
    seed: int,
    strategy: str,
    options: Mapping[str, Any] | None = None,
    schedule: str | Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> str:
    """A job with what `describe` says of PyTorch's optimizer; `more` holds any other fields, and wins over the rest."""
    job: dict[str, Any] = {
        "model": model_name,
        "epochs": epochs,
        "batch": batch,
        "seed": seed,
        "optimizer": dict(optimizer),
        "swarm": {"strategy": strategy, "options": dict(options or {})},
    }
    if schedule is not None:
        job["schedule"] = {"kind": schedule} if isinstance(schedule, str) else dict(schedule)
    return to_toml(_merged(job, more or {}))


def describe(optimizer: Optimizer, n_vectors: int) -> dict[str, Any]:
    """What an optimizer is like, for the rules that set a swarm's learning rate; the steps stay its own.

    Optimizers that the job has no name for count as `adamw`, whose steps do not grow with the gradient either.
    """
    group = optimizer.param_groups[0]
    kind = next((name for which, name in _KINDS if isinstance(optimizer, which)), "adamw")
    lr = float(group.get("lr", 0.0))
    described: dict[str, Any] = {"kind": kind, "lr": lr if lr >= _LEAST_LR else 1.0}
    momentum = float(group.get("momentum") or 0.0) if kind in ("sgd", "rmsprop") else 0.0
    if 0.0 < momentum < 1.0:
        described["momentum"] = momentum
        if kind == "sgd" and group.get("nesterov"):
            described["nesterov"] = True
    return {**described, "custom": n_vectors}


def check_optimizer(optimizer: Mapping[str, Any], job: str) -> None:
    """Refuses an optimizer that is not like that of the swarm's job: replicas that step differently drift apart."""
    section = re.search(r"^\[optimizer\]\n((?:[^\[\n].*\n?|\n)*)", job, re.MULTILINE)
    theirs = dict(re.findall(r"^(\w+)\s*=\s*(.+?)\s*$", section.group(1) if section else "", re.MULTILINE))
    usual = {"momentum": 0.0, "nesterov": False}
    for name in ("kind", "custom", "lr", "momentum", "nesterov"):
        if name not in theirs:
            continue
        here, there = optimizer.get(name, usual.get(name)), json.loads(theirs[name])
        if isinstance(there, float):
            there = float(f"{there:.6g}")
        is_same = math.isclose(here, there, rel_tol=1e-5) if isinstance(there, float) else here == there
        if not is_same:
            what = "the number of vectors it keeps" if name == "custom" else name
            raise ValueError(
                f"the optimizer here is not that of the swarm: {what} is {here} here and {there} there. Make it the "
                "same; a schedule comes with the swarm"
            )


def batch_in(job: str) -> int:
    """The batch size that a job says; jobs have it among their first fields, which belong to no section."""
    found = re.search(r"^batch\s*=\s*(\d+)", job.split("\n[")[0], re.MULTILINE)
    return int(found.group(1)) if found else DEFAULT_BATCH


def to_toml(table: Mapping[str, Any], path: str = "") -> str:
    """A nested dict as TOML; None is left out."""
    lines = [
        f"{_key(key)} = {_value(value)}" for key, value in table.items() if not _is_section(value) and value is not None
    ]
    for key, value in table.items():
        if _is_section(value):
            name = f"{path}{_key(key)}"
            lines += ["", f"[{name}]", to_toml(value, f"{name}.").rstrip("\n")]
    return "\n".join(lines) + "\n"


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    raise TypeError(f"a job cannot hold a {type(value).__name__}: use numbers, text, lists and dicts")


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
