"""One long run with a fault every so often: whether it ever stands still, and whether memory stays as it is."""

import random
import resource
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos_runs.oracle import Problem, Verdict
from chaos_runs.plan import Plan, draw_fault
from chaos_runs.swarm import ENDINGS, Job, Swarm
from machine import as_table, note

# Never fewer members than the least, and as many as this where nothing has just happened.
LEAST_PEERS, N_PEERS = 3, 5
# For ever, as far as this goes; each lasts some seconds.
EPOCHS, SPEED = 1_000_000, 400
# A process that was there for this share of the time is looked at; its first part is not, as it may still grow into its work.
LONG_LIVED, WARM_UP = 0.5, 0.25
# Memory is flat if it would grow by less than this share, or this many bytes, in the time that was measured.
FLAT_SHARE, FLAT_BYTES = 0.05, 2 << 20
SAMPLE_S = 2.0
PAGE = resource.getpagesize()


@dataclass
class Memory:
    """A process's resident memory over time."""
    samples: list = field(default_factory=list)

    def look(self, pid, now):
        try:
            self.samples.append((now, PAGE * int(Path(f"/proc/{pid}/statm").read_text().split()[1])))
        except (OSError, IndexError):
            pass

    def told(self):
        first, last = self.samples[0][0], self.samples[-1][0]
        settled = [(at, n) for at, n in self.samples if at >= first + WARM_UP * (last - first)]
        slope = slope_of(settled)
        growth = slope * (settled[-1][0] - settled[0][0])
        return {"seconds": round(last - first, 1), "start_bytes": self.samples[0][1], "settled_bytes": settled[0][1],
                "end_bytes": self.samples[-1][1], "slope_bytes_per_minute": round(60 * slope),
                "is_flat": growth <= max(FLAT_SHARE * settled[0][1], FLAT_BYTES)}


def slope_of(samples):
    """Of the line that fits best, by least squares."""
    n = len(samples)
    mean_x, mean_y = sum(x for x, _ in samples) / n, sum(y for _, y in samples) / n
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


class Soak(Swarm):
    """A swarm that goes on while its members come and go. Whoever started it stays: only its address is in the ticket; and so does one
    other, so that memory can be watched."""

    def __init__(self, a, machine, lab, binary, place):
        job = Job(a.strategy, None, N_PEERS, EPOCHS, SPEED, a.deadline, a.first)
        super().__init__(job, machine, lab, binary, place)
        self.a, self.rng, self.memory, self.problems = a, random.Random(f"soak {a.first}"), {}, []
        self.next_fault, self.next_look = None, 0.0
        # A restart would end all that is watched; joins come when somebody is missing.
        self.kinds = [kind for kind in machine.kinds if kind not in ("restart", "join")]
        self.free_hosts = list(range(N_PEERS, n_hosts()))

    def victims(self, fault):
        """So that enough are left."""
        well, residents = self.well(), self.current[:2]
        able = [peer for peer in well if fault.kind not in ENDINGS or peer not in residents]
        return able if len(well) > LEAST_PEERS else []

    def replace(self):
        """Has newcomers join until there are as many as there should be."""
        for peer in [peer for peer in self.current if not peer.is_there]:
            self.current.remove(peer)
            self.free_hosts.append(peer.host)
        while self.ticket and len(self.there()) < N_PEERS and self.free_hosts:
            self.join(self.free_hosts.pop(0))

    def run(self):
        """Trains for as long as it is to, and has all leave; what came of it."""
        self.begin()
        end = time.monotonic() + self.a.soak
        try:
            while time.monotonic() < end and not self.problems:
                self.step()
                self.go_on(time.monotonic())
            if not self.problems:
                self.leave_all()
        finally:
            self.end_all()
        plan = Plan(self.a.first, self.a.strategy, None, N_PEERS, ())
        self.problems += Verdict(self.binary, plan, EPOCHS, self.peers).find()
        return self.told()

    def go_on(self, now):
        self.note_hang()
        self.problems += [Problem("false ending", f"{peer.name} ended with status {peer.status}") for peer in self.gone()]
        if self.next_fault is None:
            # It begins when all are there.
            self.next_fault = now + self.a.every if len(self.well()) == N_PEERS else None
        else:
            if now >= self.next_fault:
                self.next_fault = now + self.a.every
                self.inflict(draw_fault(self.rng, self.kinds, is_endless=False))
            self.replace()
        if now >= self.next_look:
            self.next_look = now + SAMPLE_S
            self.look(now)

    def note_hang(self):
        hang = self.hang()
        if hang is not None:
            self.problems.append(Problem("hang", hang))

    def gone(self):
        """Who ended though nobody asked it to. A newcomer may be turned away: whoever is to let it in may be suspended just then."""
        ended = [peer for peer in self.current if not peer.is_there and peer.view is not None]
        return [peer for peer in ended if not peer.is_killed and not peer.is_told_to_leave]

    def look(self, now):
        for peer in self.there():
            # Before that, it has nothing in memory yet.
            if peer.view is not None:
                self.memory.setdefault(peer.name, Memory()).look(peer.pid, now)

    def leave_all(self):
        """All are asked to end when no fault is left, and do."""
        while self.later:
            self.step()
        for peer in self.there():
            self.do_leave(peer, None, None)
        while any(peer.is_there for peer in self.current) and not self.problems:
            self.step()
            self.note_hang()

    def told(self):
        seconds = time.monotonic() - self.began
        long = {name: memory.told() for name, memory in self.memory.items()
                if memory.samples and memory.samples[-1][0] - memory.samples[0][0] >= LONG_LIVED * self.a.soak}
        self.problems += [Problem("memory", f"{name} grows by {told['slope_bytes_per_minute']} bytes a minute")
                          for name, told in long.items() if not told["is_flat"]]
        counts = {}
        for fault in self.inflicted:
            counts[fault["kind"]] = counts.get(fault["kind"], 0) + 1
        return {"seconds": round(seconds, 1), "strategy": self.a.strategy, "deadline": self.a.deadline, "faults": counts,
                "n_processes": len(self.peers), "longest_stall_s": round(max(self.stalls, default=0), 2),
                "longest_stall_deadlines": round(max(self.stalls, default=0) / self.a.deadline, 2), "memory": long,
                "problems": [asdict(problem) for problem in self.problems]}


def n_hosts():
    # Who leaves may still be there when the next one comes.
    return 2 * N_PEERS


def run(a, machine, binary, place):
    folder = Path(place) / "soak"
    folder.mkdir()
    with machine.lab(n_hosts(), "soak") as lab:
        told = Soak(a, machine, lab, binary, folder).run()
    if told["problems"] or a.keep:
        note(f"all of it is in {folder}")
    else:
        shutil.rmtree(folder)
    return told


def print_report(told, machine):
    faults = ", ".join(f"{n} {kind}" for kind, n in sorted(told["faults"].items()))
    print(f"{told['seconds']:.0f} s of {told['strategy']}; {sum(told['faults'].values())} faults: {faults}; "
          f"{told['n_processes']} processes in all.")
    print(f"Longest stall: {told['longest_stall_s']:.1f} s, {told['longest_stall_deadlines']:.1f} deadlines.\n")
    mib = 1 << 20
    rows = [[name, f"{kept['seconds']:.0f}", *(f"{kept[at] / mib:.1f}" for at in ("start_bytes", "settled_bytes", "end_bytes")),
             f"{kept['slope_bytes_per_minute'] / 1024:+.1f}", "flat" if kept["is_flat"] else "GROWS"]
            for name, kept in told["memory"].items()]
    print(as_table(["process", "s", "MiB at first", "settled", "at the end", "KiB a minute", "memory"], rows, False))
    for problem in told["problems"]:
        print(f"{problem['kind']}: {problem['text']}")
    for reason in machine.left_out:
        print(f"Not tried here: {reason}.")
