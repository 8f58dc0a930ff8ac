"""What must hold in every run, whatever happened in it."""

import json
import signal
import subprocess
from dataclasses import dataclass

from chaos_runs import checkpoints

FINISHED, FAILED, LEFT = 0, 1, 130
PANICS = ("panicked at", "RUST_BACKTRACE", "fatal runtime error", "stack overflow")


@dataclass(frozen=True)
class Problem:
    # `hang`, `false ending`, `panic` and the like: what is counted.
    kind: str
    text: str

    def __str__(self):
        return f"{self.kind}: {self.text}"


class Verdict:
    """Looks at all processes of a run that have ended, and at their folders."""

    def __init__(self, binary, plan, epochs, peers):
        self.binary, self.plan, self.epochs, self.peers = binary, plan, epochs, peers
        self.problems = []
        # Of each folder, the last process that had it.
        self.last = {peer.folder: peer for peer in peers}
        self.final = {}

    def find(self):
        for peer in self.peers:
            self.check_words(peer)
        for folder, peer in self.last.items():
            self.check_folder(folder, peer)
        for peer in self.peers:
            self.check_ending(peer)
        self.check_models()
        self.check_somebody()
        return self.problems

    def add(self, kind, text):
        self.problems.append(Problem(kind, text))

    def check_words(self, peer):
        """What it printed."""
        errors = peer.errors()
        for word in PANICS:
            if word in errors:
                self.add("panic", f"{peer.name}: {next(line for line in errors.splitlines() if word in line)}")
                break
        # Who is killed may have been in the middle of a line.
        garbled = peer.not_json[:-1] if peer.is_killed else peer.not_json
        if garbled:
            self.add("unreadable", f"{peer.name} printed {garbled[0]!r}")

    def check_folder(self, folder, peer):
        """What it left on the disk, even if it was killed: checkpoints that are whole, and events."""
        whole, damaged = checkpoints.survey(folder)
        for problem in damaged:
            self.add("damaged checkpoint", f"{peer.name}: {problem}")
        self.final[folder] = next((kept for kept in whole if kept.epoch == self.epochs), None)
        events = folder / "events.jsonl"
        # One that is killed may have been in the middle of its last line; a run that goes on begins on a new one.
        bad = [k for k, line in enumerate(events.read_text().splitlines(), 1) if not is_json(line)] if events.exists() else []
        n_killed = sum(other.is_killed for other in self.peers if other.folder == folder)
        if len(bad) > n_killed:
            self.add("unreadable", f"{events}: lines {bad[:5]}")

    def check_ending(self, peer):
        if peer.is_killed:
            return
        last = last_words(peer.errors())
        is_last = self.last[peer.folder] is peer
        kept = self.final[peer.folder] if is_last else None
        if peer.status == FINISHED:
            self.check_finished(peer, kept)
        elif peer.status == LEFT and peer.is_told_to_leave:
            if not last:
                self.add("unclear", f"{peer.name} left without a word")
        elif peer.status == -signal.SIGTERM and peer.is_told_to_leave and not peer.has_started:
            pass  # It had not begun to listen.
        elif peer.status == FAILED:
            self.check_failed(peer, kept, last)
        else:
            self.add("false ending", f"{peer.name} ended with status {peer.status}: {last}")

    def check_finished(self, peer, kept):
        if not peer.has_met_others:
            self.add("false ending", f"{peer.name} finished without ever having met anybody")
        if kept is None:
            # With layers shared out, only one keeps the whole.
            if not self.plan.stages:
                self.add("false ending", f"{peer.name} finished without a whole checkpoint of epoch {self.epochs}")
            return
        test = subprocess.run([self.binary, "eval", peer.folder, "--threads", "1", "--json"], capture_output=True, text=True)
        if test.returncode != 0:
            self.add("false ending", f"{peer.name} finished, but its model does not load: {test.stderr.strip()}")

    def check_failed(self, peer, kept, last):
        if not last.startswith("error: ") or len(last) < 20:
            self.add("unclear", f"{peer.name} failed with the last line {last!r}")
        if kept is not None:
            self.add("false ending", f"{peer.name} failed, but its last epoch is on the disk: {last}")
        # Who was never let in, and whose disk was full, may.
        elif peer.view is not None and not peer.had_full_disk:
            self.add("failed", f"{peer.name}: {last}")

    def check_models(self):
        """All who finish in one view have the same bits. Who was parted from the others to the end finishes in another one."""
        models = {}
        for peer in self.peers:
            kept = self.final[peer.folder] if self.last[peer.folder] is peer else None
            if peer.status == FINISHED and kept is not None:
                first, parameters = models.setdefault(peer.view, (peer, kept.parameters))
                if parameters != kept.parameters:
                    self.add("different models", f"{first.name} and {peer.name} both finished in view {peer.view}")

    def check_somebody(self):
        """Somebody finishes unless all are gone or cannot; and then it is kept somewhere."""
        finished = [peer for peer in self.peers if peer.status == FINISHED]
        able = [peer for peer in self.peers if not (peer.is_killed or peer.is_told_to_leave or peer.is_spoilt or peer.had_full_disk)
                and peer.view is not None]
        if able and not finished:
            self.add("nobody finished", f"{', '.join(peer.name for peer in able)} could have")
        # The one who was to keep a network in layers may have been killed when all was trained, or have had no room.
        is_excused = any(peer.is_killed or peer.had_full_disk or peer.is_told_to_leave or peer.is_spoilt for peer in self.peers)
        if finished and not any(self.final.values()) and not is_excused:
            self.add("false ending", "all who finished have nothing on the disk")


def last_words(errors):
    """The last line; or the error with which it ends, which may have several."""
    before, error, rest = errors.strip().rpartition("error: ")
    if error and (not before or before.endswith("\n")):
        return error + rest
    return (errors.strip().splitlines() or [""])[-1]


def is_json(line):
    try:
        return "event" in json.loads(line)
    except (ValueError, TypeError):
        return False
