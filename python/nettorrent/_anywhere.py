"""Training for those who bring a framework's trainer: on this machine, as the start of a swarm, or as one who joins."""

from __future__ import annotations

from typing import Any

from torch import nn

from ._api import fit, join, start
from ._watch import Result

_OF_THE_SWARM = {"epochs", "batch", "strategy", "options", "seed", "schedule", "wait_for", "resume", "job"}


def train(model: nn.Module, *, ticket: str | None = None, wait_for: int | None = None, **options: Any) -> Result:
    """Joins with a ticket; starts a swarm, and prints its ticket, with `wait_for`; else trains in this process."""
    if ticket is not None:
        own = {name: value for name, value in options.items() if name not in _OF_THE_SWARM}
        return join(ticket, model, **own).run()
    if wait_for is None:
        return fit(model, **options)
    swarm = start(model, wait_for=wait_for, **options)
    print(f"ticket: {swarm.ticket}", flush=True)
    return swarm.run()
