"""A swarm of processes that faults are inflicted on, and who watches whether it gets on."""

import heapq
import itertools
import queue
import time
from dataclasses import dataclass
from pathlib import Path

from chaos_runs import faults
from chaos_runs.peer import Peer

# After the last fault is over, a swarm that stands still for so many deadlines hangs.
HANG_DEADLINES = 3
# A joiner tries for so many deadlines to reach members, which is its own patience, and asks so many seconds for an invitation.
JOIN_DEADLINES, ASK_S = 3, 20
# A thread that is stuck is noticed after this, however quick it usually is.
STUCK_DEADLINES = 2
# Whom these strike is gone.
ENDINGS = ("kill", "leave")
# How often is looked whether something hangs.
LOOK_S = 0.25
# The upper bits of a member's number are the order in which they joined.
INDEX_SHIFT = 40
# What the story tells of events.
TOLD = {
    "note": lambda event: event["text"],
    "view": lambda event: f"view {event['view']} of {[member >> INDEX_SHIFT for member in event['members']]} in round {event['round']}",
    "checkpoint-failed": lambda event: event["problem"],
    "rollback": lambda event: event["why"],
    "stop": lambda event: f"{event['reason']} in epoch {event['epoch']}",
}
MODEL = "mlp:24,16"
N_TRAIN = 3823


@dataclass(frozen=True)
class Job:
    strategy: str
    stages: str | None
    n_peers: int
    epochs: int
    # Of each peer, in samples a second: how long a run takes does not depend on the machine, as long as it is not too busy.
    speed: float
    deadline: float
    seed: int

    def words(self):
        settings = [f"swarm.deadline={self.deadline:g}", f"seed={self.seed}"]
        settings += [f"pipeline.stages={self.stages}", "pipeline.snapshot_every=20"] if self.stages else []
        return ["--model", MODEL, "--epochs", self.epochs, "--strategy", self.strategy,
                *(word for setting in settings for word in ("--set", setting))]


class Swarm:
    """Its processes, what they tell, and what happens to them."""

    def __init__(self, job, machine, lab, binary, place):
        self.job, self.machine, self.lab, self.binary, self.place = job, machine, lab, binary, Path(place)
        self.queue, self.peers, self.current = queue.SimpleQueue(), [], []
        self.ticket, self.next_host, self.began = None, job.n_peers, time.monotonic()
        # What is to happen when: the ends of faults.
        self.later, self.order = [], itertools.count()
        # Threads that are frozen: the peer's, and what thaws them.
        self.frozen = []
        # Ways between peers on which nothing gets through.
        self.cuts = []
        # From when on the swarm is to get on; and when it last did.
        self.calm_from, self.last_progress, self.stalls = self.began, None, []
        self.inflicted, self.story = [], open(self.place / "story.txt", "w")

    def tell(self, text):
        print(f"{time.monotonic() - self.began:8.3f} s: {text}", file=self.story, flush=True)

    # Processes.

    def begin(self, resumed=None):
        """Starts a swarm, from the folder of a run if one is given; the others join when there is a ticket."""
        self.ticket, self.current, self.last_progress = None, [], None
        peer = self.peer(0)
        words = ["start", "--wait-for", self.job.n_peers]
        if resumed is None:
            words += [*self.job.words(), "--run", peer.name]
        else:
            peer.run = resumed.name
            words += ["--resume", resumed.name]
        self.launch(peer, words)

    def peer(self, host):
        peer = Peer(f"peer-{len(self.peers)}", host, self.place, self.queue)
        self.peers.append(peer)
        self.current.append(peer)
        return peer

    def launch(self, peer, words, ticket=None):
        command = [self.binary, *words, "--threads", 1, "--listen", self.lab.listen(peer.host), "--speed", f"{self.job.speed:g}", "--json"]
        peer.start(self.lab.command(peer.host, command), ticket)
        self.tell(f"{peer.name} ({peer.pid}): {' '.join(map(str, words))}")

    def join(self, host):
        peer = self.peer(host)
        self.launch(peer, ["join", "--run", peer.name], self.ticket)
        return peer

    def there(self):
        """Those who run and may go on doing so."""
        return [peer for peer in self.current if peer.is_there and not peer.is_killed and not peer.is_told_to_leave]

    def well(self):
        """Those of them whom nothing ails, and who take part."""
        return [peer for peer in self.there() if peer.is_well and peer.view is not None]

    def is_training(self):
        return any(peer.view is not None for peer in self.current)

    def share(self):
        """What share of all is trained."""
        return max((peer.best for peer in self.current), default=0.0)

    # Time.

    def at(self, due, action):
        heapq.heappush(self.later, (due, next(self.order), action))

    def step(self, due=None):
        """Waits for something to happen, but not longer than until then, and takes it in."""
        if self.machine.is_stopped.is_set():
            raise KeyboardInterrupt
        now = time.monotonic()
        until = min([now + LOOK_S, *([due] if due else []), *([self.later[0][0]] if self.later else [])])
        try:
            when, peer, line = self.queue.get(timeout=max(until - now, 0.0))
        except queue.Empty:
            pass
        else:
            self.hear(when, peer, line)
        while self.later and self.later[0][0] <= time.monotonic():
            heapq.heappop(self.later)[2]()
        self.thaw_ended()

    def hear(self, when, peer, line):
        if line is None:
            peer.end()
            self.tell(f"{peer.name} has ended with status {peer.status}")
            return
        before = peer.last_progress
        event = peer.hear(when, line)
        if event is None:
            return
        if event["event"] == "ticket" and self.ticket is None and peer is self.current[0]:
            # Every member has a ticket; the one who starts tells of it first, and again when there is a new one.
            self.ticket = event["ticket"]
            for host in range(1, self.job.n_peers):
                self.join(host)
        elif event["event"] in TOLD:
            self.tell(f"{peer.name}: {TOLD[event['event']](event)}")
        if peer.last_progress > before and peer in self.current and self.is_training():
            self.on_progress(when)

    def on_progress(self, when):
        if self.last_progress is not None:
            self.stalls.append(when - self.last_progress)
        self.last_progress = when

    def hang(self):
        """Says who should have got on or ended long ago, if somebody should."""
        judged = [peer for peer in self.current if peer.is_there and not peer.is_spoilt and not peer.is_killed]
        if not judged:
            return None
        limit = HANG_DEADLINES * self.job.deadline
        if any(peer.view is None for peer in judged):
            limit += JOIN_DEADLINES * self.job.deadline
        if not all(peer.has_started for peer in judged):
            limit = max(limit, ASK_S)
        signs = [peer.last_progress for peer in self.current] + [peer.waits_until for peer in judged]
        quiet_s = time.monotonic() - max(self.calm_from, *signs)
        if quiet_s <= limit:
            return None
        return f"{', '.join(peer.name for peer in judged)} stood still for {quiet_s:.1f} s after all faults were over"

    # Faults.

    def inflict(self, fault):
        """Has a fault happen; whether it could."""
        able = self.victims(fault)
        if not able:
            return False
        victim = pick(able, fault.victim)
        others = [peer for peer in self.there() if peer is not victim]
        other = pick(others, fault.other) if others else None
        now = time.monotonic()
        until = None if fault.lasts is None else now + fault.lasts * self.job.deadline
        self.calm_from = max(self.calm_from, until or now)
        try:
            whom = getattr(self, f"do_{fault.kind.replace('-', '_')}")(victim, other, until)
        except OSError:
            whom = None  # It has ended just now.
        if whom is None:
            return False
        self.inflicted.append({"kind": fault.kind, "whom": whom, "at_s": round(now - self.began, 3),
                               "lasts_s": until and round(until - now, 3)})
        self.tell(f"{fault.kind} {whom}{' for ever' if fault.lasts is None else ''}")
        return True

    def victims(self, fault):
        """Whom it may strike: one who is well is always left."""
        well = self.well()
        is_final = fault.kind in ENDINGS or fault.lasts is None
        return well if len(well) > is_final else []

    def lasts(self, peer, until, end, spoils=True):
        """A peer is under a fault until it ends; if it never does, one cannot expect anything of the peer."""
        peer.ails += 1
        if until is None:
            peer.is_spoilt |= spoils
            return

        def over():
            peer.ails -= 1
            self.tell(f"over for {peer.name}")
            try:
                if peer.is_there:
                    end()
            except ProcessLookupError:
                pass  # It has ended just now.
        self.at(until, over)

    def do_kill(self, victim, _, __):
        victim.kill()
        return victim.name

    def do_join(self, *_):
        self.next_host += 1
        return self.join(self.next_host - 1).name

    def do_leave(self, victim, _, __):
        victim.leave()
        return victim.name

    def do_suspend(self, victim, _, until):
        faults.suspend(victim.pid, True)
        self.lasts(victim, until, lambda: faults.suspend(victim.pid, False))
        return victim.name

    def do_full_disk(self, victim, _, until):
        faults.set_full(victim.pid, True)
        victim.had_full_disk = True
        self.lasts(victim, until, lambda: faults.set_full(victim.pid, False), spoils=False)
        return victim.name

    def do_stick(self, victim, _, until):
        self.calm_from = max(self.calm_from, time.monotonic() + STUCK_DEADLINES * self.job.deadline)
        return self.freeze(victim, "compute", until)

    def do_slow_disk(self, victim, _, until):
        return self.freeze(victim, "checkpoints", until)

    def freeze(self, victim, thread, until):
        tid = faults.thread_of(victim.pid, thread)
        if tid is None:
            return None
        frozen = (victim, self.machine.freezer.freeze(victim.pid, tid))
        self.frozen.append(frozen)
        self.lasts(victim, until, lambda: self.thaw(frozen))
        return victim.name

    def thaw(self, frozen):
        if frozen in self.frozen:
            self.frozen.remove(frozen)
            self.machine.freezer.thaw(frozen[1])

    def thaw_ended(self):
        # No process is gone before its last thread is.
        for frozen in list(self.frozen):
            if not frozen[0].is_there or frozen[0].is_killed or faults.has_ended(frozen[0].pid):
                self.thaw(frozen)

    def do_cut_pair(self, victim, other, until):
        return self.cut([(victim, other), (other, victim)], until) if other else None

    def do_cut_one_way(self, victim, other, until):
        return self.cut([(victim, other)], until) if other else None

    def do_isolate(self, victim, other, until):
        others = [peer for peer in self.there() if peer is not victim]
        return self.cut([way for other in others for way in ((victim, other), (other, victim))], until) if others else None

    def cut(self, ways, until):
        for a, b in ways:
            self.lab.cut(a.host, b.host, True)
        for peer in {peer for way in ways for peer in way}:
            self.lasts(peer, until, lambda: None, spoils=False)
        self.cuts.append(ways)
        if until is not None:
            # Also when one of them is gone: its host may be another's later.
            self.at(until, lambda: self.mend(ways))
        return ", ".join(f"{a.name} to {b.name}" for a, b in ways)

    def mend(self, ways):
        if ways in self.cuts:
            self.cuts.remove(ways)
            for a, b in ways:
                self.lab.cut(a.host, b.host, False)

    # The end.

    def end_all(self):
        """Ends whatever still runs."""
        for frozen in list(self.frozen):
            self.thaw(frozen)
        for peer in self.peers:
            if peer.process and peer.is_there:
                peer.kill()
        while any(peer.process and peer.is_there for peer in self.peers):
            self.hear(*self.queue.get())


def pick(peers, at):
    return peers[int(at * len(peers))]
