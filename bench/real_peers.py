"""Peers of one swarm as processes of this machine, each on cores of its own, some of them slowed down.

A slow process is stopped and continued (SIGSTOP, SIGCONT) many times a second: one that is to be ten times slower runs for a tenth of
each period. That needs no rights and no cgroups. How much of the time each really ran is measured, so that what the system's clock
does to short periods does not count against anybody.
"""

import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from machine import note

# A peer that is to run for less of each period than this is stopped for a longer one.
LEAST_RUN_S = 0.001


class Brake:
    """Slows a process down, from `begin()` until it ends."""

    def __init__(self, process, factor, period_s):
        self.process, self.factor = process, factor
        self.run_s = max(period_s / factor, LEAST_RUN_S)
        self.ran_s = self.stopped_s = 0.0
        self.thread = threading.Thread(target=self.drive, daemon=True)

    def begin(self):
        if self.factor > 1:
            self.thread.start()

    def drive(self):
        then = time.monotonic()
        try:
            while self.process.poll() is None:
                time.sleep(self.run_s)
                self.process.send_signal(signal.SIGSTOP)
                stopped = time.monotonic()
                # Whatever it ran for, it stands still for as long as makes it so many times slower.
                time.sleep(max((stopped - then) * (self.factor - 1), 0.0))
                self.process.send_signal(signal.SIGCONT)
                now = time.monotonic()
                self.ran_s += stopped - then
                self.stopped_s += now - stopped
                then = now
        except ProcessLookupError:
            pass

    def share(self):
        """Which share of the time it ran since it was begun to be slowed down."""
        together = self.ran_s + self.stopped_s
        return self.ran_s / together if together else 1.0


class Swarm:
    """Trains a job with processes that are slowed down by these factors."""

    def __init__(self, binary, job, data, period_s):
        self.binary, self.period_s = binary, period_s
        self.data = ["--data", data] if data else []
        self.job = [*job, *self.data, "--threads", 1]

    def start(self, words, cores, **how):
        def confine():
            os.sched_setaffinity(0, cores)

        command = [str(self.binary), *map(str, words)]
        return subprocess.Popen(command, text=True, preexec_fn=confine, stderr=subprocess.DEVNULL, **how)

    def base_speed(self, n_peers):
        """Samples a second of one process alone, on as many cores as one of so many has: those of its median epoch."""
        with tempfile.TemporaryDirectory() as place:
            process = self.start(["train", *self.job, "--run", "run", "--json"], cores_of(0, n_peers), cwd=place,
                                 stdout=subprocess.PIPE)
            begin, epochs = {}, []
            for event in map(json.loads, process.stdout):
                if event["event"] == "start":
                    begin = event
                elif event["event"] == "epoch":
                    epochs.append(event)
            if process.wait() != 0 or not epochs:
                raise RuntimeError(f"one process alone ended with status {process.returncode}")
        return {"n_train": begin["n_train"], "samples_per_s": begin["n_train"] / statistics.median(e["seconds"] for e in epochs)}

    def train(self, strategy, factors, slow_after_s):
        """Trains with a process for each factor; slow ones become so when that much time has passed since training began."""
        n_peers = len(factors)
        with tempfile.TemporaryDirectory() as place:
            words = ["start", "--listen", "127.0.0.1:0", "--wait-for", n_peers, *self.job, "--strategy", strategy, "--run", "run-0",
                     "--json"]
            processes = [self.start(words, cores_of(0, n_peers), cwd=place, stdout=subprocess.PIPE)]
            try:
                return self.follow(processes, factors, slow_after_s, place)
            finally:
                for process in processes:
                    if process.poll() is None:
                        # One that is stopped does not hear that it is to end.
                        process.send_signal(signal.SIGCONT)
                        process.kill()
                for process in processes:
                    process.wait()

    def follow(self, processes, factors, slow_after_s, place):
        n_peers, epochs, brakes, n_views, problem = len(factors), [], [], 0, None
        timer = None
        for event in map(json.loads, processes[0].stdout):
            if event["event"] == "ticket":
                for peer in range(1, n_peers):
                    words = ["join", event["ticket"], "--listen", "127.0.0.1:0", "--threads", 1, "--run", f"run-{peer}", "--json",
                             *self.data]
                    processes.append(self.start(words, cores_of(peer, n_peers), cwd=place, stdout=subprocess.DEVNULL))
            elif event["event"] == "view":
                n_views += 1
                if len(event["members"]) == n_peers and not brakes:
                    brakes = [Brake(process, factor, self.period_s) for process, factor in zip(processes, factors)]
                    timer = threading.Timer(slow_after_s, lambda: [brake.begin() for brake in brakes])
                    timer.start()
            elif event["event"] == "epoch":
                epochs.append(event)
        if timer:
            timer.cancel()
        if processes[0].wait() != 0:
            problem = f"the first peer ended with status {processes[0].returncode}"
        if n_views > 1:
            problem = "peers were given up on the way"
        seconds, test_s = sum(e["seconds"] for e in epochs), sum(e["test_seconds"] for e in epochs)
        accuracy = epochs[-1]["test_accuracy"] if epochs else None
        return {"failed": problem, "seconds": seconds, "test_seconds": test_s, "n_epochs": len(epochs), "test_accuracy": accuracy,
                "slow_after_s": slow_after_s, "shares": [brake.share() for brake in brakes]}


def cores_of(peer, n_peers):
    """A peer's own cores; all, where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // n_peers
    if share == 0:
        note(f"{n_peers} peers share {len(cores)} cores: times mean little") if peer == 0 else None
        return set(cores)
    return set(cores[peer * share:(peer + 1) * share])


def ideal_s(run, n_train, epochs, speed):
    """In how many seconds of training peers that are never idle would have done all, given how much of the time each ran."""
    work, n_peers = epochs * n_train, len(run["shares"])
    slow = speed * sum(run["shares"])
    # Tests are not in the time that counts, but they were in the time after which peers became slow.
    before = run["slow_after_s"] * run["seconds"] / max(run["seconds"] + run["test_seconds"], 1e-9)
    done_before = min(before * speed * n_peers, work)
    return done_before / (speed * n_peers) + (work - done_before) / slow
