"""The program with models of Python: `model = "file.py:function"`. Needs the program: NETTORRENT names it, or it is on the path."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = os.environ.get("NETTORRENT") or shutil.which("nettorrent")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the program is not there: set NETTORRENT to its path")

MODEL = """
from torch import nn

def build(n_classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, n_classes))

def digits_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.25),
        nn.Linear(64, 10),
    )

def fails():
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(nn.Linear(64, 10).weight.detach())

        def forward(self, x):
            raise RuntimeError("this model never works")

    return Failing()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def started(place: Path, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "NETTORRENT_PYTHON": sys.executable}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([str(PROGRAM), *arguments], cwd=place, env=environment, text=True, **pipes)


def run(place: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    process = started(place, *arguments)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def accuracy(output: str) -> float:
    return float(re.findall(r"test loss .*?accuracy +([0-9.]+) %", output)[-1])


@pytest.mark.parametrize("peers", [[], ["--peers", "2", "--strategy", "diloco"]])
def test_a_job_trains_a_model_of_python_and_evaluates_it(place: Path, peers: list[str]) -> None:
    done = run(place, "train", "--model", "model.py:build", "--epochs", "2", "--run", "here", *peers)
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout) > 80
    judged = run(place, "eval", "here", "--json")
    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["accuracy"] > 0.8
    assert not list(Path("/dev/shm").glob("nettorrent-*")), "no memory is left behind"


def test_a_run_is_resumed(place: Path) -> None:
    assert run(place, "train", "--model", "model.py:build", "--epochs", "1", "--run", "here").returncode == 0
    done = run(place, "resume", "here", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "epoch 2/2" in done.stdout


def test_an_error_in_the_model_names_file_and_line(place: Path) -> None:
    done = run(place, "train", "--model", "model.py:fails", "--epochs", "1")
    assert done.returncode != 0
    assert "this model never works" in done.stderr
    assert re.search(r"model\.py, line \d+", done.stderr)
    assert "no function `other`" in run(place, "train", "--model", "model.py:other").stderr


def test_pytorch_computes_the_model_of_a_swarm_that_has_none_of_python(place: Path) -> None:
    """A mixed swarm: one peer computes `digits-cnn` with our engine, the other with PyTorch."""
    start = ["start", "--set", "model=digits-cnn", "--epochs", "3", "--wait-for", "2", "--listen", "127.0.0.1:0"]
    first = started(place, *start, "--run", "first")
    assert first.stdout is not None
    ticket = None
    for line in first.stdout:
        if found := re.search(r"nt3[a-z0-9]+", line):
            ticket = found.group()
            break
    assert ticket is not None
    refused = run(place, "join", ticket, "--model", "model.py:build", "--run", "wrong")
    assert refused.returncode != 0 and "tensors" in refused.stderr, "another network is refused"
    second = run(place, "join", ticket, "--model", "model.py:digits_cnn", "--run", "second")
    if second.returncode != 0:
        first.kill()
    out, err = first.communicate(timeout=120)
    assert (first.returncode, second.returncode) == (0, 0), err + second.stderr
    assert accuracy(out) > 90
    models = [max((place / run / "checkpoints").iterdir()) / "model.safetensors" for run in ("first", "second")]
    assert models[0].read_bytes() == models[1].read_bytes(), "both hold the same model"


def test_what_trains_many_times_loads_a_model_of_python_once_a_peer(place: Path) -> None:
    (place / "told.py").write_text(f'print("it is loaded")\n{MODEL}')
    common = ["--model", "told.py:build", "--peers", "2", "--epochs", "1", "--set", "data.take=600"]
    simulated = run(place, "simulate", *common, "--strategy", "gossip")
    assert simulated.returncode == 0, simulated.stderr
    advised = run(place, "advise", *common, "--here", "--seeds", "1", "--budget", "5", "--json")
    assert advised.returncode == 0, advised.stderr
    assert len(json.loads(advised.stdout)["strategies"]) > 10
    for done in (simulated, advised):
        assert 1 <= done.stderr.count("it is loaded") <= 3, done.stderr
