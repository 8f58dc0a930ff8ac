"""Checkpoints of a run's folder, read without the program that wrote them."""

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path

MODEL, STATE = "model.safetensors", "state.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    # Epochs done.
    epoch: int
    # A hash of all parameters, bit by bit.
    parameters: str


def names(run):
    """The checkpoints of a run, oldest first; not what is being written."""
    return sorted((run / "checkpoints").glob("step-" + "[0-9]" * 10))


def read(folder):
    """Reads a checkpoint; raises ValueError or OSError if it is not whole."""
    sums = json.loads((folder / "checksums.json").read_text())["files"]
    headers = {name: check(folder / name, sums[name]) for name in (MODEL, STATE)}
    told = json.loads(headers[STATE]["__metadata__"]["nettorrent"])
    tensors = json.dumps(sums[MODEL]["tensors"], sort_keys=True)
    return Checkpoint(folder, told["progress"]["epoch"], hashlib.sha256(tensors.encode()).hexdigest())


def check(file, sums):
    """The header of a file of tensors that are what they were when they were written."""
    data = file.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8:8 + n]), data[8 + n:]
    places = {name: tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__"}
    found = {name: hashlib.sha256(tensors[first:end]).hexdigest() for name, (first, end) in places.items()}
    if found != sums["tensors"] or hashlib.sha256(data[:8 + n]).hexdigest() != sums["header"]:
        raise ValueError(f"{file} is not what was written")
    return header


def survey(run):
    """The whole checkpoints of a run, and in words what is wrong with others."""
    whole, problems = [], []
    for folder in names(run):
        try:
            whole.append(read(folder))
        except (OSError, ValueError, KeyError, struct.error) as error:
            problems.append(f"{folder}: {error!r}")
    return whole, problems
