"""The job of a swarm as TOML: what all of its peers have in common."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

DEFAULT_BATCH = 32


def make_job(
    model_name: str,
    n_optimizer_vectors: int,
    *,
    epochs: int,
    batch: int,
    seed: int,
    strategy: str,
    options: Mapping[str, Any] | None = None,
    schedule: str | Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> str:
    """A job whose optimizer is PyTorch's own; `more` holds any other fields, and wins over the rest."""
    job: dict[str, Any] = {
        "model": model_name,
        "epochs": epochs,
        "batch": batch,
        "seed": seed,
        "optimizer": {"lr": 1.0, "custom": n_optimizer_vectors},
        "swarm": {"strategy": strategy, "options": dict(options or {})},
    }
    if schedule is not None:
        job["schedule"] = {"kind": schedule} if isinstance(schedule, str) else dict(schedule)
    return to_toml(_merged(job, more or {}))


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
