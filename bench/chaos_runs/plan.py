"""What is to happen in a run: drawn from its seed."""

import random
from dataclasses import dataclass

# Faults that can be inflicted everywhere, in namespaces, and where single threads can be frozen.
ANYWHERE = ["kill", "leave", "suspend", "full-disk", "join", "restart"]
CUTS = ["cut-pair", "cut-one-way", "isolate"]
FREEZES = ["stick", "slow-disk"]
# Which of them last, and so may never end.
LASTING = ["suspend", "full-disk", *CUTS, *FREEZES]
# All are killed or leave in a restart, and little of a run is left for others: half as often.
WEIGHTS = {"restart": 0.5}

# For four peers each; others stand by: stages with a shared layer, and with shared samples.
STAGES = ["[{layers=3,tensor_shards=2},{layers=2},{layers=1}]", "[{layers=5},{layers=1,batch_shards=3}]"]
PIPELINE_SLOTS = 4

MIN_PEERS, MAX_PEERS, MAX_FAULTS = 3, 6, 4
# The share of faults that never end, and of those that strike while the swarm is busy with the one before.
ENDLESS, CHAINED = 0.1, 0.3


@dataclass(frozen=True)
class Fault:
    kind: str
    # What share of the run is to be trained first; without one, it follows the fault before.
    share: float | None
    # How many deadlines later it happens.
    after: float
    # How many deadlines it lasts; for ever without a number.
    lasts: float | None
    # Two numbers from 0 to 1: whom of those it strikes who are there then.
    victim: float
    other: float

    def __str__(self):
        when = "then" if self.share is None else f"at {100 * self.share:.0f} %"
        lasting = "" if self.kind not in LASTING else " for ever" if self.lasts is None else f" for {self.lasts:.2f} deadlines"
        return f"{when} + {self.after:.2f} deadlines: {self.kind}{lasting}"


@dataclass(frozen=True)
class Plan:
    seed: int
    strategy: str
    # The job's stages, if no peer holds the network whole.
    stages: str | None
    n_peers: int
    faults: tuple[Fault, ...]

    @staticmethod
    def draw(seed, strategies, kinds):
        """What follows from a seed. Consecutive seeds go through all strategies, and through pipelines."""
        rng = random.Random(f"plan {seed}")
        at = seed % (len(strategies) + len(STAGES))
        stages = STAGES[at - len(strategies)] if at >= len(strategies) else None
        strategy = "ring-all-reduce" if stages else strategies[at]
        n_peers = rng.randint(PIPELINE_SLOTS if stages else MIN_PEERS, MAX_PEERS)
        faults = [draw_fault(rng, kinds) for _ in range(rng.randint(1, MAX_FAULTS))]
        faults.sort(key=lambda fault: fault.share)
        # The first one has none to follow.
        chained = [fault if k == 0 or rng.random() >= CHAINED else follow(fault) for k, fault in enumerate(faults)]
        return Plan(seed, strategy, stages, n_peers, tuple(chained))

    @property
    def n_hosts(self):
        """How many peers there may be that each have a place on the network; who comes after a restart takes an old one."""
        return self.n_peers + sum(fault.kind == "join" for fault in self.faults)

    def __str__(self):
        shared = f", {self.stages}" if self.stages else ""
        return f"{self.n_peers} peers, {self.strategy}{shared}; " + "; ".join(map(str, self.faults))


def draw_fault(rng, kinds, is_endless=None):
    kind = rng.choices(kinds, [WEIGHTS.get(kind, 1.0) for kind in kinds])[0]
    # From blinks to what lasts long after everybody has noticed.
    lasts = rng.uniform(0.05, 2.0) ** 2
    endless = rng.random() < ENDLESS if is_endless is None else is_endless
    return Fault(kind, rng.uniform(0.02, 0.95), rng.uniform(0, 0.5), None if endless and kind in LASTING else lasts,
                 rng.random(), rng.random())


def follow(fault):
    return Fault(fault.kind, None, 2 * fault.after, fault.lasts, fault.victim, fault.other)
