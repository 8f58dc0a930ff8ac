"""Results of long comparisons: written after every run, and taken up again by the next call."""

import hashlib
import json
import os
import sys
from pathlib import Path


class Results:
    """Runs by what was run. Those that a file holds from the same binary are not repeated."""

    def __init__(self, file, binary):
        if not binary.exists():
            sys.exit(f"there is no {binary}; leave --engine out to build it")
        self.file = Path(file) if file else None
        self.digest = hashlib.sha256(binary.read_bytes()).hexdigest()
        self.runs = read_runs(self.file) if self.file and self.file.exists() else []

    def find(self, key):
        """The run of this key, if it is there."""
        return next((run for run in self.runs if run["key"] == key and run["binary_sha256"] == self.digest), None)

    def get(self, key, measure):
        """The run of this key: the one that is there, or else what `measure()` gives, which is written down."""
        run = self.find(key)
        if run is not None:
            return run
        run = {"key": key, "binary_sha256": self.digest, "load_before": load(), **measure(), "load_after": load()}
        self.runs.append(run)
        if self.file:
            self.file.write_text(json.dumps({"runs": self.runs}, indent=1) + os.linesep)
        return run


def read_runs(file):
    try:
        runs = json.loads(file.read_text())["runs"]
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"{file} cannot be read as results ({error!r}); name another file or remove it")
    if not all("key" in run and "binary_sha256" in run for run in runs):
        sys.exit(f"{file} holds results of another script; name another file or remove it")
    return runs


def load():
    """How busy the machine was in the last minute."""
    return round(os.getloadavg()[0], 2)
