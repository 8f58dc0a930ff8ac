"""A process of a swarm: started, listened to, and what it has told so far."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

# Too few are left, and this one waits for the others until then.
WAITS = re.compile(r"goes on without them after (\d+) seconds")
PROGRESS = ("progress", "epoch", "checkpoint", "evaluation", "stop")


class Peer:
    """One process with its folder; what it prints is kept beside that, and put into the queue as it comes."""

    def __init__(self, name, host, place, queue):
        self.name, self.host, self.place, self.queue = name, host, Path(place), queue
        self.run = name
        self.process = None
        # What it told.
        self.n_train, self.n_epochs, self.has_started = 0, 0, False
        self.at, self.best, self.view, self.stopped = (0, 0), 0.0, None, None
        self.has_met_others, self.not_json = False, []
        # When it last told that it got on, and until when it said that it would wait.
        self.last_progress, self.waits_until = time.monotonic(), 0.0
        self.checkpoints = []
        # What was done to it.
        self.is_killed, self.is_told_to_leave, self.had_full_disk = False, False, False
        # Faults that it is under, and those of them that never end.
        self.ails, self.is_spoilt = 0, False
        self.status = None

    def start(self, command, ticket=None):
        env = {**os.environ, **({"NETTORRENT_TICKET": ticket} if ticket else {})}
        # Python ignores SIGXFSZ, and so does whom it starts without restoring signals: a file that may not grow is then an error as on a
        # full disk. A session of its own: Ctrl-C is for us.
        self.process = subprocess.Popen(list(map(str, command)), cwd=self.place, env=env, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=False, start_new_session=True)
        # Not into files: a limit of what may be written would be theirs, too.
        errors = threading.Thread(target=self.copy_errors, daemon=True)
        errors.start()
        threading.Thread(target=self.listen, args=(errors,), daemon=True).start()

    @property
    def pid(self):
        return self.process.pid

    @property
    def folder(self):
        return self.place / self.run

    @property
    def is_there(self):
        return self.status is None

    @property
    def is_well(self):
        """Whether it runs and nothing ails it."""
        return self.is_there and self.ails == 0 and not self.is_spoilt and not self.is_killed and not self.is_told_to_leave

    # What is done to it.

    def kill(self):
        self.is_killed = True
        try:
            # With whatever it started.
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def leave(self):
        self.is_told_to_leave = True
        self.process.send_signal(signal.SIGTERM)

    # Threads.

    def copy_errors(self):
        with open(self.place / f"{self.name}.err", "a") as kept:
            for line in self.process.stderr:
                kept.write(line)
                kept.flush()

    def listen(self, errors):
        with open(self.place / f"{self.name}.out", "a") as kept:
            for line in self.process.stdout:
                kept.write(line)
                self.queue.put((time.monotonic(), self, line))
        errors.join()
        self.process.wait()
        self.queue.put((time.monotonic(), self, None))

    # What it tells.

    def hear(self, when, line):
        """Takes in a line; returns the event, if it is one."""
        try:
            event = json.loads(line)
            name = event["event"]
        except (ValueError, KeyError, TypeError):
            self.not_json.append(line)
            return None
        if name == "start":
            self.n_train, self.n_epochs, self.has_started, self.last_progress = event["n_train"], event["epochs"], True, when
        elif name == "note":
            found = WAITS.search(event["text"])
            if found:
                self.waits_until = when + float(found[1])
        elif name == "view":
            # Which is no progress: views that follow each other for ever are none.
            self.view = event["view"]
            self.has_met_others |= len(event["members"]) > 1
        elif name in PROGRESS:
            self.on_progress(when, name, event)
        return event

    def on_progress(self, when, name, event):
        if name == "stop":
            self.stopped = event["reason"]
        elif name == "checkpoint":
            self.checkpoints.append((event["epoch"], event["path"]))
        elif name != "evaluation":
            done = (event["epoch"] - 1, event["n_samples"]) if name == "progress" else (event["epoch"], 0)
            if done == self.at:
                return
            self.at = done
            self.best = (done[0] + done[1] / max(self.n_train, 1)) / max(self.n_epochs, 1)
        self.last_progress = when

    def end(self):
        self.status = self.process.returncode

    def errors(self):
        """What it wrote to standard error."""
        return (self.place / f"{self.name}.err").read_text(errors="replace")
