"""Calls a worker as Rust does, with memory of its own, without a network."""

import json
import queue
import threading

import torch


def view(tensor):
    """The bytes of a CPU tensor, writable."""
    return memoryview(tensor.numpy()).cast("B")


class Peer:
    """The values and optimizer state of one peer, and its calls of a worker."""

    def __init__(self, worker):
        self.worker = worker
        tensors = worker.tensors()
        sizes = [(torch.Size(shape).numel(), kind) for _, shape, kind in tensors]
        self.n_params = sum(n for n, kind in sizes if kind == "parameter")
        self.n_values = sum(n for n, _ in sizes)
        self.values = torch.zeros(self.n_values)
        self.vectors = [torch.zeros(self.n_params) for _ in range(worker.n_optimizer_vectors)]
        self.n_steps = 0
        worker.fill_initial(view(self.values))

    def gradient(self, samples, seed, has_values=False, give=None):
        out = torch.full((self.n_values,), torch.nan)
        before = self.values.clone()
        if give is not None:
            give.begin(out)
        score = self.worker.gradient(view(self.values), view(torch.tensor(samples)), seed, view(out), has_values, give)
        assert torch.equal(self.values, before), "values must not be written to"
        return score, out

    def step(self, gradient, lr=1.0, there=(False, False)):
        self.n_steps = self.worker.step(view(self.values), self._vectors(), self.n_steps, view(gradient.clone()), lr, *there)

    def change(self, gradient, lr=1.0):
        out = torch.full((self.n_values,), torch.nan)
        before = self.values.clone()
        self.n_steps = self.worker.change(
            view(self.values), self._vectors(), self.n_steps, view(gradient.clone()), lr, view(out)
        )
        assert torch.equal(self.values, before), "values must not be written to"
        return out

    def local(self, batches, lr=1.0, most_loss=float("inf")):
        """A local phase: a step for each (samples, seed)."""
        self.worker.local_begin(view(self.values), self._vectors(), self.n_steps)
        scores = [self.worker.local_step(view(torch.tensor(b)), seed, lr, most_loss) for b, seed in batches]
        self.n_steps = self.worker.local_end(view(self.values), self._vectors())
        return scores

    def score(self, samples):
        return self.worker.score(view(self.values), view(torch.tensor(samples)))

    def test(self, start, stop):
        return self.worker.test(view(self.values), start, stop)

    def _vectors(self):
        return [view(vector) for vector in self.vectors]


def flat(model):
    """A model's parameters and buffers as one vector."""
    tensors = [*model.parameters(), *model.buffers()]
    return torch.cat([t.detach().reshape(-1).float() for t in tensors])


class Giver:
    """Takes buckets of so many numbers as Rust does, and keeps what they were when they were given."""

    def __init__(self, n_params, n_values, size):
        cuts = [*range(0, n_params, size), n_params]
        self.buckets = [*reversed(list(zip(cuts, cuts[1:], strict=False)))]
        self.buckets += [(n_params, n_values)] if n_values > n_params else []
        self.given = []

    def begin(self, out):
        self._out, self.given = out, []

    def __call__(self, bucket):
        assert bucket == len(self.given), "buckets are given in order"
        start, stop = self.buckets[bucket]
        self.given.append(self._out[start:stop].clone())


class FakeRun:
    """Stands in for `_core.Run`: `script(peer, told)` plays Rust's thread, which goes on in the background."""

    ticket, folder = "a-ticket", "a-folder"

    def __init__(self, worker, script, checkpoint=None):
        self.worker, self.script, self.checkpoint = worker, script, checkpoint
        self.left = threading.Event()
        self.events = queue.SimpleQueue()
        self.peer = Peer(worker)
        self.problem = None
        threading.Thread(target=self._play, daemon=True).start()

    def run(self, on_event):
        while (event := self.events.get()) is not None:
            if on_event:
                on_event(json.dumps(event))
        if self.problem:
            raise self.problem
        ending = "left" if self.left.is_set() else "finished"
        return {"ending": ending, "step": self.peer.n_steps, "epoch": 1, "checkpoint": self.checkpoint}

    def leave(self):
        self.left.set()

    def _play(self):
        try:
            self.script(self.peer, self.events.put)
        except BaseException as problem:
            self.problem = problem
        self.events.put(None)
