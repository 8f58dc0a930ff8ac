"""Training for those who bring a framework's trainer: on this machine, as the start of a swarm, or as one who joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ._api import fit, join, start
from ._watch import Result

_OF_THE_SWARM = {"epochs", "batch", "strategy", "options", "seed", "schedule", "wait_for", "resume", "job"}


def train(model: nn.Module, *, ticket: str | None = None, wait_for: int | None = None, **options: Any) -> Result:
    """Joins with a ticket; starts a swarm, and prints its ticket, with `wait_for`; else trains in this process."""
    if ticket is not None:
        return join(ticket, model, **of_this_peer(options)).run()
    if wait_for is None:
        return fit(model, **options)
    swarm = start(model, wait_for=wait_for, **options)
    print(f"ticket: {swarm.ticket}", flush=True)
    return swarm.run()


def of_this_peer(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that who joins has, too; the others come with the swarm."""
    return {name: value for name, value in options.items() if name not in _OF_THE_SWARM}
