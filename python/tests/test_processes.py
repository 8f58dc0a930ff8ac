"""Peers in processes of their own."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_worker import data, net
from torch.nn import functional as F

import nettorrent

pytest.importorskip("nettorrent._core")

from peer import Peer  # noqa: E402

SHARED = {"epochs": 3, "batch": 16}


@pytest.fixture
def peers(tmp_path, monkeypatch):
    """Starts peers, each with a folder of its own, and ends those that are left."""
    started = []

    def start(**options):
        place = tmp_path / f"peer-{len(started)}"
        started.append(Peer(**{"out": str(place), "values_to": str(tmp_path / f"{len(started)}.pt")} | options))
        started[-1].values = lambda k=len(started) - 1: torch.load(tmp_path / f"{k}.pt")
        return started[-1]

    yield start
    for peer in started:
        peer.kill()


def assert_equal(one, other):
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("loop", ["batches", "run"])
@pytest.mark.parametrize("strategy", ["ring-all-reduce", "diloco"])
def test_one_starts_another_joins_and_both_end_with_the_same(peers, strategy, loop):
    first = peers(**SHARED, wait_for=2, strategy=strategy, loop=loop)
    second = peers(ticket=first.hear("ticket")["ticket"], loop=loop)
    ends = [peer.hear("ending") for peer in (first, second)]
    assert [(end["ending"], end["epoch"]) for end in ends] == [("finished", 3)] * 2
    assert ends[0]["loss"] == ends[1]["loss"] and all(end["n_batches"] > 0 for end in ends)
    assert_equal(first.values(), second.values())


@pytest.mark.parametrize("strategy", ["ring-all-reduce", "diloco"])
def test_a_peer_that_is_killed_costs_only_its_work(peers, strategy):
    first = peers(**SHARED, wait_for=2, strategy=strategy)
    second = peers(ticket=first.hear("ticket")["ticket"], pause_at=4)
    second.hear("paused")
    second.kill()
    end = first.hear("ending")
    assert (end["ending"], end["epoch"]) == ("finished", 3)


@pytest.mark.parametrize("strategy", ["ring-all-reduce", "diloco"])
def test_a_late_joiner_gets_the_state_and_takes_part(peers, strategy):
    first = peers(**{**SHARED, "epochs": 20}, strategy=strategy, pause_from=9)
    ticket = first.hear("ticket")["ticket"]
    first.hear("paused")
    second = peers(ticket=ticket)
    second.hear("joined")
    while not second.has_said("began", 0.1):
        first.go_on()
        first.hear("paused")
    first.go_on("free")
    ends = [peer.hear("ending") for peer in (first, second)]
    assert [end["ending"] for end in ends] == ["finished"] * 2 and ends[0]["loss"] == ends[1]["loss"]
    assert ends[1]["n_batches"] > 0 and ends[1]["epoch"] == 20
    assert_equal(first.values(), second.values())


@pytest.mark.parametrize("loop", ["batches", "run"])
def test_an_exception_ends_its_peer_and_the_other_goes_on(peers, loop):
    first = peers(**SHARED, wait_for=2)
    second = peers(ticket=first.hear("ticket")["ticket"], fail_at=4, loop=loop)
    folder = second.hear("joined")["folder"]
    error = second.hear("error")
    assert error["error"] == "ValueError: this batch is bad"
    assert 'raise ValueError("this batch is bad")' in error["trace"]
    if loop == "run":
        assert re.search(r"this batch is bad \(.*peer\.py, line \d+\)", Path(folder, "events.jsonl").read_text())
    end = first.hear("ending")
    assert (end["ending"], end["epoch"]) == ("finished", 3)


def test_leaving_the_loop_leaves_the_swarm_and_the_other_goes_on(peers):
    first = peers(**SHARED, wait_for=2)
    second = peers(ticket=first.hear("ticket")["ticket"], leave_at=4)
    assert second.hear("ending")["ending"] == "left"
    end = first.hear("ending")
    assert (end["ending"], end["epoch"]) == ("finished", 3)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            {"hidden": 6},
            r"parameter 0.weight \[6, 1, 3, 3\] where the swarm's has the parameter 0.weight \[5, 1, 3, 3\]",
        ),
        ({"n": 95}, "samples"),
        ({"lr": 0.2}, "lr is 0.2 here and 0.1 there"),
    ],
)
def test_what_is_not_the_swarms_is_refused_at_the_join(peers, other, told):
    first = peers(**SHARED, pause_at=2)
    ticket = first.hear("ticket")["ticket"]
    first.hear("paused")
    with pytest.raises(AssertionError, match=told):
        peers(ticket=ticket, **other).hear("joined")
    first.go_on()
    assert first.hear("ending")["ending"] == "finished"


@pytest.mark.parametrize("loop", ["batches", "run"])
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, loop):
    folder = tmp_path / "run"
    options = {"epochs": 100_000, "batch": 16, "loop": loop, "out": str(folder), "progress": True}
    command = [sys.executable, str(Path(__file__).parent / "peer.py"), json.dumps(options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert any('"epoch": 2' in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert errors.rstrip().endswith("KeyboardInterrupt") and process.returncode in (130, -signal.SIGINT), errors
    told = re.search(r'Stopped at step (\d+); nothing is lost. Go on with resume="(.*)"', said + errors)
    step = int(told.group(1))
    assert told.group(2) == str(folder) and (folder / "checkpoints" / f"step-{step:010}").is_dir()

    model = net(dropout=0.1)
    swarm = nettorrent.start(
        model,
        F.cross_entropy,
        data(96),
        data(48, seed=1),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        epochs=step // 6 + 2,
        batch=16,
        resume=folder,
        progress=False,
    )
    first = next(event for event in swarm.events() if event["event"] == "start")
    assert first["step"] == step


BUSY = """
import os, signal, torch, nettorrent
from torch import nn
from torch.nn import functional as F

big, n = torch.randn(400, 400, requires_grad=True), 0

def loss(output, target):
    global n
    n += 1
    if n == 8:
        os.kill(os.getpid(), signal.SIGINT)
    return F.cross_entropy(output, target) + 0 * (big @ big @ big @ big).sum()

data = torch.randn(600, 2), torch.arange(600) % 3
nettorrent.fit(nn.Linear(2, 3), loss, data, optimizer="sgd", batch=20, peers=2, device="cpu", progress=False)
"""


def test_a_process_that_ends_while_its_peers_compute_does_not_crash(tmp_path):
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt") and "nothing is lost" in done.stderr
