"""One run: a swarm to which happens what its plan says."""

import random
import time
from dataclasses import asdict
from pathlib import Path

from chaos_runs import checkpoints
from chaos_runs.oracle import Problem, Verdict
from chaos_runs.plan import Fault
from chaos_runs.swarm import N_TRAIN, Job, Swarm

EPOCHS = 4
# Peers that are left alone take longer; and then there are waits.
MOST_TIMES, MOST_DEADLINES = 2, 40


class World(Swarm):
    """A swarm that follows a plan until all have ended."""

    def __init__(self, plan, options, machine, lab, binary, place):
        # Every sample goes through all stages of a pipeline, one after the other.
        at_a_time = 1 if plan.stages else plan.n_peers
        speed = EPOCHS * N_TRAIN / (options.seconds * at_a_time)
        job = Job(plan.strategy, plan.stages, plan.n_peers, EPOCHS, speed, options.deadline, plan.seed)
        super().__init__(job, machine, lab, binary, place)
        self.plan, self.pending = plan, list(plan.faults)
        # When the next fault is due, once that is known; and when the last one was inflicted.
        self.due, self.last_fault = None, self.began
        self.restart_by: Fault | None = None
        self.n_void = 0
        self.most_s = plan.n_peers * options.seconds * MOST_TIMES + MOST_DEADLINES * options.deadline
        self.by = self.began + self.most_s
        self.tell(f"seed {plan.seed}: {plan}")

    def run(self):
        """Runs to the end; what came of it."""
        self.begin()
        hang = None
        try:
            while hang is None and self.goes_on():
                self.step(self.due)
                self.go_on()
                hang = self.hang()
                if hang is None and time.monotonic() > self.by:
                    hang = f"the run has taken {time.monotonic() - self.began:.0f} s and does not come to an end"
        finally:
            self.end_all()
            self.n_void += len(self.pending)
        problems = [] if hang is None else [Problem("hang", hang)]
        problems += Verdict(self.binary, self.plan, EPOCHS, self.peers).find()
        for problem in problems:
            self.tell(str(problem))
        return {"strategy": self.plan.strategy, "stages": self.plan.stages, "n_peers": self.plan.n_peers, "faults": self.inflicted,
                "n_void": self.n_void, "seconds": round(time.monotonic() - self.began, 2), "stall_s": round(max(self.stalls, default=0), 2),
                "n_finished": sum(peer.status == 0 for peer in self.peers), "problems": [asdict(problem) for problem in problems]}

    def goes_on(self):
        """Whether somebody runs of whom an end can be expected, or is to be started again."""
        return self.restart_by is not None or any(peer.is_there and not peer.is_spoilt for peer in self.current)

    def go_on(self):
        if self.restart_by is not None:
            if not any(peer.is_there for peer in self.current):
                self.begin_again()
        elif self.pending and self.is_training():
            self.arm()
            if self.due is not None and self.due <= time.monotonic():
                fault, self.due, self.last_fault = self.pending.pop(0), None, time.monotonic()
                if not self.inflict(fault):
                    self.n_void += 1

    def arm(self):
        """Sets the moment of the next fault when the run has come so far."""
        fault = self.pending[0]
        if self.due is None and fault.share is None:
            self.due = self.last_fault + fault.after * self.job.deadline
        elif self.due is None and self.share() >= fault.share:
            self.due = time.monotonic() + fault.after * self.job.deadline

    # Faults that only make sense with a plan.

    def inflict(self, fault):
        self.fault = fault
        return super().inflict(fault)

    def do_restart(self, *_):
        """All end, one way or another, to be started again from what one of them has."""
        if self.share() > 0.9:
            return None
        rng = random.Random(f"restart {self.plan.seed}")
        for peer in self.current:
            if peer.is_there and (peer.ails or rng.random() < 0.5):
                peer.kill()
            elif peer.is_there:
                peer.leave()
        self.restart_by = self.fault
        return "all"

    def begin_again(self):
        fault, self.restart_by = self.restart_by, None
        # Who starts waits for all others, for ever if need be.
        for ways in list(self.cuts):
            self.mend(ways)
        folders = sorted({peer.folder for peer in self.current if (peer.folder / "events.jsonl").exists()})
        kept = {folder: checkpoints.survey(folder)[0] for folder in folders}
        unfinished = [folder for folder in folders if all(found.epoch < EPOCHS for found in kept[folder])]
        # Any that has something to go on from; else from the beginning.
        choice = [folder for folder in unfinished if kept[folder]] or unfinished
        if choice:
            self.calm_from = max(self.calm_from, time.monotonic())
            self.by = self.calm_from + self.most_s
            self.begin(choice[int(fault.other * len(choice))])


def run_one(plan, options, machine, binary, place):
    """Makes a run in a folder."""
    Path(place).mkdir(parents=True)
    with machine.lab(plan.n_hosts, f"{plan.seed}") as lab:
        return World(plan, options, machine, lab, binary, place).run()
