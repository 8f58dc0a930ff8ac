"""How faults are inflicted on processes of this machine, and what this machine allows."""

import atexit
import os
import resource
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import hosts
from chaos_runs.plan import ANYWHERE, CUTS, FREEZES

# Links are not what is tried here: as fast as the machine.
RATE_MBIT = 10_000
# Nobody has this card: what is sent to it goes nowhere, and nobody says so.
NOWHERE = "02:00:00:00:00:01"
# What a file may grow to on a full disk: most have more than that.
FULL_BYTES = 512


class Namespaces(hosts.Hosts):
    """Hosts of which one can be kept from sending to another."""

    def __init__(self, n, label):
        super().__init__(n, RATE_MBIT, hosts.BURST, label)
        # How many faults cut each way.
        self.cuts = {}

    def cut(self, a, b, is_cut):
        """Nothing gets from a to b, or does again."""
        if a == b:
            return
        before = self.cuts.get((a, b), 0)
        now = self.cuts[a, b] = before + (1 if is_cut else -1)
        neighbour = f"{self.address(b)} dev {hosts.DEVICE}"
        if before == 0 and now == 1:
            hosts.call("ip -n", self.names[a], f"neigh replace {neighbour} lladdr {NOWHERE} nud permanent")
        elif now == 0:
            hosts.call("ip -n", self.names[a], f"neigh del {neighbour}")


class Freezer:
    """Freezes single threads: by a control group of version 1, or a threaded one of version 2; needs root."""

    V1, V2 = Path("/sys/fs/cgroup/freezer"), (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))

    def __init__(self):
        self.lock, self.count = threading.Lock(), 0
        # With version 2, a whole process has to move: which, and where it came from.
        self.homes = {}
        # Groups that are to be removed.
        self.used = []
        atexit.register(self.sweep)
        self.root, self.is_v1 = (self.V1, True) if (self.V1 / "cgroup.procs").exists() else (
            next((path for path in self.V2 if (path / "cgroup.controllers").exists()), None), False)

    def works(self):
        """Whether it can freeze a thread of another process."""
        if self.root is None or os.geteuid() != 0:
            return False
        sleeper = subprocess.Popen(["sleep", "60"])
        try:
            self.thaw(self.freeze(sleeper.pid, sleeper.pid))
            return True
        except OSError:
            return False
        finally:
            sleeper.kill()
            sleeper.wait()

    def freeze(self, pid, tid):
        """Freezes a thread; what it returns thaws it."""
        with self.lock:
            self.count += 1
            group = self.root / f"nettorrent-chaos-{os.getpid()}-{self.count}"
        group.mkdir()
        if self.is_v1:
            (group / "tasks").write_text(str(tid))
            (group / "freezer.state").write_text("FROZEN")
            return group
        # The process becomes a domain of threads, one of which is in a group of its own.
        home = self.root / Path(f"/proc/{pid}/cgroup").read_text().rpartition("::/")[2].strip()
        (group / "cgroup.procs").write_text(str(pid))
        (group / "thread").mkdir()
        (group / "thread" / "cgroup.type").write_text("threaded")
        (group / "thread" / "cgroup.threads").write_text(str(tid))
        (group / "thread" / "cgroup.freeze").write_text("1")
        self.homes[group] = (pid, home)
        return group

    def thaw(self, group):
        if self.is_v1:
            (group / "freezer.state").write_text("THAWED")
            move(group / "tasks", self.root / "tasks")
        else:
            pid, home = self.homes.pop(group)
            (group / "thread" / "cgroup.freeze").write_text("0")
            move(group / "thread" / "cgroup.threads", group / "cgroup.threads")
            self.used.append(group / "thread")
            try:
                (home / "cgroup.procs").write_text(str(pid))
            except OSError:
                pass  # It has ended.
        self.used.append(group)
        self.sweep()

    def sweep(self):
        """Removes the groups that nobody is in any more; a thread that ends just now still is."""
        with self.lock:
            for group in list(self.used):
                try:
                    group.rmdir()
                    self.used.remove(group)
                except OSError:
                    pass


def move(source, target):
    """Moves the threads of one control group into another."""
    for tid in source.read_text().split():
        try:
            target.write_text(tid)
        except OSError:
            pass  # It has ended.


def thread_of(pid, name):
    """The first thread of that name, if the process has one."""
    for task in sorted(Path(f"/proc/{pid}/task").glob("*"), key=lambda task: int(task.name)):
        try:
            if (task / "comm").read_text().strip() == name:
                return int(task.name)
        except OSError:
            pass
    return None


def has_ended(pid):
    """Whether a process has ended but for a thread that is frozen."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def set_full(pid, is_full):
    """Lets no file of a process grow, as on a full disk, or all of them again."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES if is_full else hard, hard))


def suspend(pid, is_suspended):
    os.kill(pid, signal.SIGSTOP if is_suspended else signal.SIGCONT)


class Machine:
    """What faults can be inflicted here."""

    def __init__(self, network, wanted=None):
        # Set when all runs are to end at once.
        self.is_stopped = threading.Event()
        self.freezer = Freezer()
        self.can_freeze = self.freezer.works()
        self.network = "namespaces" if network != "loopback" and can_make_namespaces() else "loopback"
        if network == "namespaces" and self.network != network:
            raise SystemExit("network namespaces need root, `ip` and `tc` (iproute2), and a kernel that lets one make them")
        able = [*ANYWHERE, *(CUTS if self.network == "namespaces" else []), *(FREEZES if self.can_freeze else [])]
        for kind in wanted or []:
            if kind not in able:
                raise SystemExit(f"`{kind}` is no fault that can happen here; there are {', '.join(able)}")
        # In one order, whatever order they are named in: a seed is to draw the same from the same ones.
        self.kinds = [kind for kind in able if not wanted or kind in wanted]

    @property
    def left_out(self):
        """What is not tried here, and why."""
        reasons = []
        if self.network == "loopback":
            reasons.append(f"{', '.join(CUTS)} (peers are on loopback: cuts need root, `ip` and `tc`)")
        if not self.can_freeze:
            reasons.append(f"{', '.join(FREEZES)} (freezing one thread needs root and a cgroup freezer)")
        return reasons

    def lab(self, n_hosts, label):
        return Namespaces(n_hosts, label) if self.network == "namespaces" else hosts.Loopback()


def can_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    try:
        with Namespaces(2, "trial"):
            return True
    except RuntimeError:
        return False
