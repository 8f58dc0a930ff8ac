"""Many `nettorrent simulate` runs, some at a time; every finished one is kept, so that a stopped command can go on.

A file of results holds a line of JSON for each run: its settings, by which it is found again, and what came of it. A run that
could not go on, as when its loss became NaN, is kept too: it would fail again. Where the data lies is not among the settings.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from machine import ROOT, machine, note


@dataclass(frozen=True)
class Simulation:
    """A run: all that decides what comes of it, but for the binary."""
    # A name for what is trained; the rest says how.
    task: str
    strategy: str
    n_peers: int
    epochs: int
    # A job file below the root, or the default job.
    job: str | None = None
    # What `--set` says, as FIELD=VALUE.
    settings: tuple = ()
    # A scenario, as TOML.
    scenario: str | None = None
    data: Path | None = field(default=None, compare=False)

    def key(self):
        """By which the run is found again."""
        return {"task": self.task, "strategy": self.strategy, "n_peers": self.n_peers, "epochs": self.epochs, "job": self.job,
                "settings": list(self.settings), "scenario": self.scenario}

    def label(self):
        return f"{self.task}, {self.strategy}, {self.n_peers} {'peer' if self.n_peers == 1 else 'peers'}"

    def command_line(self, scenario_file):
        settings = ["threads=1", *self.settings]
        return ["simulate", *([self.job] if self.job else []), "--json", "--strategy", self.strategy,
                "--peers", str(self.n_peers), "--epochs", str(self.epochs),
                *(argument for setting in settings for argument in ("--set", setting)),
                *(["--data", str(self.data)] if self.data else []),
                *(["--scenario", str(scenario_file)] if self.scenario else [])]


# What the commands have in common.

def add_options(p, default_out):
    p.add_argument("--strategies", nargs="+", metavar="NAME", help="default: all that the binary knows")
    p.add_argument("--epochs", type=int, help="in place of the usual number")
    p.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a setting of all jobs; repeatable")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="so many runs at a time (default: %(default)s)")
    p.add_argument("--minutes", type=float, metavar="M", help="start no more runs after so many minutes")
    p.add_argument("--out", default=default_out, metavar="FILE", help="where every run is kept (default: %(default)s)")
    p.add_argument("--table", action="store_true", help="run nothing: print the table of what the file holds")
    p.add_argument("--engine", metavar="BINARY", help="run this binary; build nothing")


def strategies(binary):
    """The names of all strategies, as the binary lists them."""
    done = subprocess.run([str(binary), "strategies", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{binary} does not list its strategies: {done.stderr.strip()}")
    return [strategy["name"] for strategy in json.loads(done.stdout)]


def choose(kind, wanted, known):
    """Those that are wanted, all if nothing is said; in the order in which they are known."""
    for name in wanted or []:
        if name not in known:
            sys.exit(f"there is no {kind} `{name}`; there are {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


# The file.

class Kept:
    """The runs that a file holds, by their settings. Of two with the same settings, the later counts."""

    def __init__(self, file):
        self.file = Path(file)
        self.runs = {as_text(run["key"]): run for run in read_runs(self.file)}
        self.lock = threading.Lock()

    def get(self, simulation):
        return self.runs.get(as_text(simulation.key()))

    def add(self, run):
        with self.lock:
            self.runs[as_text(run["key"])] = run
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a") as file:
                file.write(json.dumps(run) + "\n")


def as_text(key):
    return json.dumps(key, sort_keys=True)


def read_runs(file):
    """The runs of a file. A last line that was cut off, as when the power failed, is removed."""
    if not file.exists():
        return []
    content = file.read_bytes()
    whole = content[:content.rfind(b"\n") + 1]
    if whole != content:
        os.truncate(file, len(whole))
    try:
        runs = [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        sys.exit(f"{file} cannot be read as results ({error}); name another file or remove it")
    if not all(isinstance(run, dict) and "key" in run and "simulated_s" in run for run in runs):
        sys.exit(f"{file} holds results of another script; name another file or remove it")
    return runs


def origins(runs):
    """Which binaries made these runs: two in one table would compare what cannot be compared."""
    by_binary = {}
    for run in runs:
        by_binary.setdefault(run["binary_sha256"], []).append(run["commit"])
    # A binary that was given may have been run from later checkouts, too.
    counts = {f"binary {binary[:12]} (checkout at {' and '.join(dict.fromkeys(commits))})": len(commits)
              for binary, commits in by_binary.items()}
    if len(counts) < 2:
        return "".join(f"All {n} runs by {origin}." for origin, n in counts.items())
    return "RUNS OF DIFFERENT BINARIES: " + ", ".join(f"{n} by {origin}" for origin, n in counts.items()) + "."


# Running.

class BadCommand(Exception):
    """The program refused to begin: the fault is in the command, and the next one would be refused too."""


def run_all(simulations, kept, binary, a):
    """Runs what the file does not hold yet. How many are left, if the time was over first."""
    if not binary.exists():
        sys.exit(f"there is no {binary}; leave --engine out to build it")
    missing = [simulation for simulation in simulations if kept.get(simulation) is None]
    if len(missing) < len(simulations):
        note(f"{len(simulations) - len(missing)} of {len(simulations)} runs are in {kept.file} already")
    team = Team(len(missing), kept, binary, a.minutes)
    with ThreadPoolExecutor(a.jobs) as pool:
        works = [pool.submit(team.work, simulation) for simulation in missing]
        try:
            for work in works:
                work.result()
        except BadCommand as error:
            team.is_over.set()
            sys.exit(str(error))
        except KeyboardInterrupt:
            # Those that run were interrupted as well, and are not kept.
            team.is_over.set()
            sys.exit("stopped; the same command goes on")
    n_left = len(missing) - team.n_done
    if n_left:
        note(f"{n_left} of {len(simulations)} runs are left; the same command goes on with them")
    return n_left


class Team:
    """What those who run at the same time share."""

    def __init__(self, n_all, kept, binary, minutes):
        self.n_all, self.n_done, self.kept, self.binary = n_all, 0, kept, binary
        self.origin = {"binary_sha256": hashlib.sha256(binary.read_bytes()).hexdigest(), "commit": machine()["commit"]}
        self.ends = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
        self.is_over, self.lock = threading.Event(), threading.Lock()

    def work(self, simulation):
        """Runs one, unless the time is over, and keeps what came of it."""
        if self.is_over.is_set() or time.monotonic() >= self.ends:
            return
        outcome = simulate(simulation, self.binary)
        if outcome is None:
            return
        self.kept.add({"key": simulation.key(), **self.origin, **outcome})
        with self.lock:
            self.n_done += 1
            note(f"{self.n_done} of {self.n_all}: {simulation.label()}: {describe(outcome)}, took {outcome['took_s']:.1f} s")


def simulate(simulation, binary):
    """What came of a run; nothing if something from outside ended it."""
    epochs, summary, has_begun, began = [], {}, False, time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        scenario_file = Path(place) / "scenario.toml"
        scenario_file.write_text(simulation.scenario or "")
        command = [str(binary), *simulation.command_line(scenario_file)]
        with (Path(place) / "errors").open("w+") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
            for line in process.stdout:
                has_begun = True
                # There are many lines, and reading them all as JSON would take longer than some runs.
                if '"event":"epoch"' in line:
                    epochs.append(json.loads(line))
                elif '"event":"summary"' in line:
                    summary = json.loads(line)
            status = process.wait()
            errors.seek(0)
            problem = errors.read().strip()
    if status < 0:
        note(f"{simulation.label()}: ended by signal {-status}; it is not kept")
        return None
    if not has_begun:
        raise BadCommand(f"{problem}\nthis was refused: {' '.join(command)}")
    n_finished = summary.get("n_finished", 0)
    if n_finished < simulation.n_peers:
        problem = problem or f"{n_finished} of {simulation.n_peers} peers finished"
    is_whole = status == 0 and n_finished == simulation.n_peers
    epoch = epochs[-1] if epochs else {}
    return {
        "failed": None if is_whole else problem or f"status {status}", "test_accuracy": epoch.get("test_accuracy"),
        "course": course(epochs),
        "n_train": epoch.get("n_train"), "n_test": epoch.get("n_test"), "simulated_s": summary.get("simulated_s"),
        "payload_bytes": summary.get("payload_bytes"), "rounds": summary.get("rounds"),
        "took_s": round(time.monotonic() - began, 2),
    }


def course(events):
    """When each epoch was over for the last of the peers, who all tell of it, and how well the model did then."""
    last = {event["epoch"]: event for event in events}
    return [{"simulated_s": event["at_s"], "test_loss": event.get("test_loss")} for event in last.values()]


def describe(outcome):
    if outcome["failed"]:
        return f"FAILED: {outcome['failed']}"
    # A language model has no accuracy, and its loss says it all.
    learnt = outcome["test_accuracy"]
    learnt = f"{100 * learnt:.2f} %" if learnt else f"loss {outcome['course'][-1]['test_loss']:.4f}"
    return f"{learnt} after {outcome['simulated_s']:.2f} simulated s"
