"""Peers of one swarm as processes of this machine that compute as slowly as machines of given speeds (`--speed`)."""

import json
import subprocess
import tempfile


class Swarm:
    """Trains a job with a process for each speed."""

    def __init__(self, binary, job):
        self.binary, self.job = binary, job

    def start(self, words, **how):
        return subprocess.Popen([str(self.binary), *map(str, words)], text=True, stderr=subprocess.DEVNULL, **how)

    def train(self, strategy, speeds):
        """Trains with peers of these speeds, as `--speed` is told them."""
        with tempfile.TemporaryDirectory() as place:
            words = ["start", "--wait-for", len(speeds), *self.job, "--threads", 1, "--strategy", strategy, *self.common(0, speeds)]
            processes = [self.start(words, cwd=place, stdout=subprocess.PIPE)]
            try:
                return self.follow(processes, speeds, place)
            finally:
                for process in processes:
                    process.kill()
                for process in processes:
                    process.wait()

    def common(self, peer, speeds):
        return ["--listen", "127.0.0.1:0", "--run", f"run-{peer}", "--speed", speeds[peer], "--json"]

    def follow(self, processes, speeds, place):
        epochs, n_views, problem = [], 0, None
        for event in map(json.loads, processes[0].stdout):
            if event["event"] == "ticket":
                for peer in range(1, len(speeds)):
                    words = ["join", event["ticket"], "--threads", 1, *self.common(peer, speeds)]
                    processes.append(self.start(words, cwd=place, stdout=subprocess.DEVNULL))
            elif event["event"] == "view":
                n_views += 1
            elif event["event"] == "epoch":
                epochs.append(event)
        if processes[0].wait() != 0:
            problem = f"the first peer ended with status {processes[0].returncode}"
        elif n_views > 1:
            problem = "peers were given up on the way"
        seconds = sum(epoch["seconds"] + epoch["test_seconds"] for epoch in epochs)
        return {"failed": problem, "seconds": seconds, "test_accuracy": epochs[-1]["test_accuracy"] if epochs else None}
