"""The strategies that are compared, each with the options it is compared with, and what is hoped of it."""

import sys
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    label: str
    strategy: str
    options: dict = field(default_factory=dict)
    # At most so many points of test accuracy below ring-all-reduce; at least so many times fewer bytes.
    most_points_below: float | None = None
    least_saving: float | None = None
    # It sends all parameters after every batch, or a part of them without encoding: on a slow link that wants large batches.
    is_dense: bool = False

    def arguments(self):
        """How `nettorrent` is told."""
        settings = [f"swarm.options.{name}={value}" for name, value in self.options.items()]
        return ["--strategy", self.strategy, *(a for setting in settings for a in ("--set", setting))]


RING = "ring-all-reduce"

# Only what differs from a strategy's defaults is said. Learning rate, momentum and batch are the same for all.
TABLE = [
    Row(RING, RING, is_dense=True),
    Row("threshold 0.1 %", "threshold", {"density": 0.001}, 0.5, 100),
    Row("threshold 0.5 %", "threshold", {"density": 0.005}, 0.5, 100),
    Row("threshold 0.5 % unwarmed", "threshold", {"density": 0.005, "warmup": 0}),
    Row("threshold 1 %", "threshold", {"density": 0.01}, 0.5, 100),
    Row("partial-gradient 1/4", "partial-gradient", {"partitions": 4}, 0.5, is_dense=True),
    Row("partial-gradient 1/10", "partial-gradient", {"partitions": 10}, 0.5, is_dense=True),
    Row("diloco", "diloco", {"bits": 8, "local_steps": 50}, 0.5, 50),
    Row("diloco 4 bits", "diloco", {"bits": 4, "local_steps": 50}),
    Row("local-sgd", "local-sgd", {"bits": 8, "local_steps": 50}),
    Row("gossip", "gossip", is_dense=True),
    Row("downpour", "downpour", is_dense=True),
    Row("step-wise", "step-wise", is_dense=True),
    Row("manager-worker", "manager-worker", {"local_steps": 50}),
    Row("best-peer", "best-peer"),
    Row("parameter-server", "parameter-server", {"shards": 0}, is_dense=True),
    Row("ring-reduce", "ring-reduce", is_dense=True),
]


def choose(names):
    """The rows of these labels or strategies, comma-separated, in the table's order; all if nothing is said."""
    if not names:
        return TABLE
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if not any(name in (row.label, row.strategy) for row in TABLE):
            sys.exit(f"there is no row `{name}`; there are {', '.join(row.label for row in TABLE)}")
    return [row for row in TABLE if row.label in wanted or row.strategy in wanted]
