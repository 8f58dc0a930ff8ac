"""Train PyTorch models across ordinary machines, peer to peer."""

from typing import Any

from ._api import fit, join, start
from ._swarm import Swarm
from ._watch import Result
from ._worker import Left, TorchWorker

__all__ = ["Left", "Result", "Swarm", "SwarmError", "TorchWorker", "fit", "join", "start"]


def __getattr__(name: str) -> Any:
    """What the part in Rust offers to users, loaded when it is asked for."""
    if name in ("SwarmError", "__version__"):
        from . import _core

        return getattr(_core, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
