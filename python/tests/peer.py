"""A peer in a process of its own, for tests: `peer.py '{"epochs": 3}'` starts a swarm, with a "ticket" it joins one.

It tells of itself, in lines of JSON where it is run as a program. Where `pause_at` or `pause_in_epoch` say, it waits.
"""

import json
import multiprocessing
import os
import sys
import traceback
from multiprocessing import forkserver
from pathlib import Path

import torch
import torch._dynamo  # PyTorch's optimizers import it when the first is made; here it is there for all that are forked.
from test_worker import data, net
from torch.nn import functional as F

import nettorrent

SECONDS = 60
_context = multiprocessing.get_context("forkserver")


def _have_server():
    """Starts the process that peers are forked from, which has imported what they need, if it does not run yet."""
    _context.set_forkserver_preload(["peer"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


class Peer:
    """The other side: a test's hold on a peer that it has started."""

    def __init__(self, **options):
        _have_server()
        self._link, theirs = _context.Pipe()
        self._process = _context.Process(target=_forked, args=(theirs, options), daemon=True)
        self._process.start()
        theirs.close()
        self.said = []

    def hear(self, what):
        """The next that it says of this kind; an error that it says first is raised."""
        while self._link.poll(SECONDS):
            self.said.append(self._link.recv())
            if what in self.said[-1]:
                return self.said[-1]
            if "error" in self.said[-1]:
                raise AssertionError(f"{self.said[-1]['error']}\n{self.said[-1]['trace']}")
        raise TimeoutError(f"it did not say `{what}` in {SECONDS} s, but {self.said}")

    def has_said(self, what, seconds):
        """Whether it says this within some seconds; what it says besides is kept."""
        while self._link.poll(seconds):
            self.said.append(self._link.recv())
            if what in self.said[-1]:
                return True
        return False

    def go_on(self, how="on"):
        """To the next pause, or `free` of those from `pause_from` on."""
        self._link.send(how)

    def kill(self):
        self._process.kill()
        self._process.join()


def _forked(link, options):
    try:
        main(link.send, link.recv, **options)
    except BaseException as problem:
        link.send({"error": f"{type(problem).__name__}: {problem}", "trace": traceback.format_exc()})


def main(
    say,
    wait,
    ticket=None,
    loop="batches",
    n=96,
    hidden=5,
    lr=0.1,
    values_to=None,
    pause_at=None,
    pause_from=None,
    fail_at=None,
    leave_at=None,
    pause_in_epoch=None,
    progress=False,
    **options,
):
    is_free = False

    def pause(where, k):
        nonlocal is_free
        say({"paused": k, "at": where})
        is_free = wait() == "free"

    torch.set_num_threads(1)
    model = net(dropout=0.1, channels=hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    n_calls = 0

    def loss_function(output, target):
        nonlocal n_calls
        n_calls += model.training
        if loop != "batches" and model.training:
            check(n_calls)
        return F.cross_entropy(output, target)

    def check(k):
        if k == pause_at or (pause_from is not None and k >= pause_from and not is_free):
            pause("batch", k)
        if k == fail_at:
            raise ValueError("this batch is bad")

    def on_event(event):
        if event["event"] == "epoch":
            say({"epoch": event["epoch"], "loss": event["test_loss"]})
            if event["epoch"] == pause_in_epoch:
                pause("epoch", event["epoch"])

    given = {"data": data(n), "test": data(48, seed=1), "optimizer": optimizer}
    given |= {"callbacks": [on_event], "progress": progress}
    if ticket is None:
        swarm = nettorrent.start(model, loss_function, **given, **options)
        say({"ticket": swarm.ticket, "folder": swarm.folder})
    else:
        swarm = nettorrent.join(ticket, model, loss_function, **given, **options)
        say({"joined": True, "folder": swarm.folder})
    if loop == "batches":
        for k, (x, y) in enumerate(swarm.batches(), start=1):
            check(k)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            swarm.step(loss)
            n_calls = k
            if k == 1:
                say({"began": True})
            if k == leave_at:
                break
        result = swarm.result
    else:
        result = swarm.run()
    if values_to:
        torch.save(model.state_dict(), values_to)
    say(
        {"ending": result.ending, "epoch": result.epoch, "step": result.step, "loss": result.loss, "n_batches": n_calls}
    )


if __name__ == "__main__":
    main(lambda what: print(json.dumps(what), flush=True), sys.stdin.readline, **json.loads(sys.argv[1]))
