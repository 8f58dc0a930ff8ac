"""Randomness: everything random about a batch follows from its seed, also where several peers share a process."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Iterator

import torch

_locks: dict[str, threading.RLock] = {}


def device_lock(device: torch.device) -> threading.RLock:
    """What a worker holds while it draws from a device's generator. A thread may take it again."""
    return _locks.setdefault(str(device), threading.RLock())


@contextlib.contextmanager
def own_device(device: torch.device) -> Iterator[None]:
    """Keeps other workers off a device: PyTorch has one generator a device, which they would draw from too."""
    with device_lock(device), torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def own_cpu(seed: int) -> Iterator[None]:
    """Seeds what reads and augments samples, and keeps others from drawing in between."""
    with device_lock(torch.device("cpu")):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(seed % 2**32)
        yield


def seed_device(seed: int, device: torch.device) -> None:
    """Seeds a device's own generator; the CPU's is `own_cpu`'s."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)
