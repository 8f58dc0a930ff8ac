"""The part in Rust: it runs the peers that workers compute for."""

from collections.abc import Callable, Sequence
from typing import Any

from ._worker import TorchWorker

__version__: str

class SwarmError(RuntimeError):
    """What went wrong with a swarm, and what to do next."""

class Run:
    """A run that goes on in the background. When it is dropped, its peers leave."""

    @staticmethod
    def local(job: str, workers: Sequence[TorchWorker], options: dict[str, Any]) -> Run: ...
    @staticmethod
    def start(job: str, worker: TorchWorker, options: dict[str, Any]) -> Run: ...
    @staticmethod
    def join(ticket: str, make_worker: Callable[[str], TorchWorker], options: dict[str, Any]) -> Run: ...
    @property
    def ticket(self) -> str | None: ...
    @property
    def folder(self) -> str: ...
    def run(self, on_event: Callable[[str], None] | None) -> dict[str, Any]: ...
    def leave(self) -> None: ...
    def read_checkpoint(self, path: str) -> bytearray: ...
