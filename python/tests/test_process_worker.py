"""The process that computes `model = "file.py:function"`, asked as Rust does, beside plain PyTorch loops."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

WORKER = Path(__file__).resolve().parents[2] / "crates/engine/src/backends/python/worker.py"
MODEL = """
from torch import nn

def build(n_classes):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, n_classes))
    model[6].bias.requires_grad_(False)
    return model
"""
N_BATCH = 12
SETTINGS = {"lr": 0.01, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.999, "alpha": 0.99}
RULES = {
    "sgd": ({"kind": "sgd"}, [], lambda p: torch.optim.SGD(p, lr=0.01)),
    "nesterov": (
        {"kind": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        ["momentum_buffer"],
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adagrad": ({"kind": "adagrad", "epsilon": 1e-10}, ["sum"], lambda p: torch.optim.Adagrad(p, lr=0.01)),
    "rmsprop": (
        {"kind": "rmsprop", "momentum": 0.5},
        ["square_avg", "momentum_buffer"],
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    ),
    "adam": ({"kind": "adam"}, ["exp_avg", "exp_avg_sq"], lambda p: torch.optim.Adam(p, lr=0.01)),
    "adamw": (
        {"kind": "adamw", "weight_decay": 0.1},
        ["exp_avg", "exp_avg_sq"],
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    ),
}


class Worker:
    """Has the process load the model, and shares a file of numbers with it."""

    def __init__(self, process, folder):
        self._process = process
        (folder / "model.py").write_text(MODEL)
        described = self.ask(
            do="begin", model=f"{folder}/model.py:build", input_shape=[6, 6, 1], n_classes=3, seed=1, threads=1, device="cpu"
        )
        self.tensors = described["tensors"]
        places, at = [], 0
        for name, shape, _ in self.tensors:
            steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
            places.append([name, at, shape, steps])
            at += math.prod(shape)
        self.n_values = at
        self.n_params = sum(math.prod(shape) for _, shape, kind in self.tensors if kind == "parameter")
        self._path = folder / "numbers"
        self._path.write_bytes(bytes(4 * (2 * at + N_BATCH * 36 + N_BATCH)))
        self.ask(do="open", path=str(self._path), n_values=at, n_batch=N_BATCH, places=places)
        self.ask(do="initial")

    def ask(self, **request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer

    def read(self, start, n):
        return torch.frombuffer(bytearray(self._path.read_bytes()[4 * start : 4 * (start + n)]), dtype=torch.float32)

    def write(self, start, numbers):
        with self._path.open("r+b") as f:
            f.seek(4 * start)
            f.write(numbers.numpy().tobytes())

    def write_batch(self, x, y):
        rows = x.permute(0, 2, 3, 1).reshape(-1).contiguous()
        self.write(2 * self.n_values, rows)
        with self._path.open("r+b") as f:
            f.seek(4 * (2 * self.n_values + N_BATCH * 36))
            f.write(struct.pack(f"{len(y)}i", *y.tolist()))

    def begin_phase(self, rule, names, vectors, n_steps, **more):
        settings = {**SETTINGS, **rule, **more}
        epsilon = settings.pop("epsilon", 1e-8)
        self.ask(do="begin_phase", optimizer=settings, epsilon=epsilon, n_steps=n_steps)
        for name, vector in zip(names, vectors, strict=True):
            self.write(self.n_values, vector)
            self.ask(do="load_vector", name=name)

    def train(self, x, y, seed, lr=0.01, most_loss=1e9, cuts=1):
        parts = list(zip(x.chunk(cuts), y.chunk(cuts), strict=True))
        for k, (some, labels) in enumerate(parts):
            self.write_batch(some, labels)
            place = {"is_first": k == 0, "is_last": k == len(parts) - 1, "share": len(some) / len(x)}
            answer = self.ask(do="train", n=len(some), seed=seed, lr=lr, most_loss=most_loss, **place)
        return answer

    def end_phase(self, names):
        n_steps = self.ask(do="end_phase")["n_steps"]
        values, vectors = self.read(0, self.n_values), []
        for name in names:
            self.ask(do="store_vector", name=name)
            vectors.append(self.read(self.n_values, self.n_params))
        return n_steps, values, vectors


@pytest.fixture(scope="module")
def started():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WORKER.read_text()], **pipes) as process:
        yield process


@pytest.fixture
def process(started, tmp_path):
    return Worker(started, tmp_path)


def twin(process):
    """The same model here."""
    scope = {}
    exec(MODEL, scope)
    torch.manual_seed(1)
    model = scope["build"](3)
    values = process.read(0, process.n_values)
    trained = torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])
    assert torch.equal(values[: process.n_params], trained)
    return model


def flat(process, model):
    state = model.state_dict()
    return torch.cat([state[name].reshape(-1).float() for name, _, _ in process.tensors])


def batches(n):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 10, 1, 6, 6, generator=generator)
    return list(zip(x, torch.arange(10).repeat(n, 1) % 3, range(100, 100 + n), strict=True))


def test_what_is_frozen_is_told_apart(process):
    kinds = [kind for _, _, kind in process.tensors]
    assert kinds == ["parameter"] * 6 + ["buffer"] * 3 + ["frozen"]


@pytest.mark.parametrize("name", RULES)
def test_local_phases_are_a_plain_loop(process, name):
    rule, names, make = RULES[name]
    model = twin(process)
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    vectors, n_steps = [torch.zeros(process.n_params) for _ in names], 0
    for phase in (batches(5)[:3], batches(5)[3:]):
        process.begin_phase(rule, names, vectors, n_steps)
        for x, y, seed in phase:
            said = process.train(x, y, seed)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            assert said["is_usual"] and said["loss_sum"] == pytest.approx(10 * loss.item(), rel=1e-5)
        n_steps, values, vectors = process.end_phase(names)
        # Whatever is done with them in between.
        process.write(0, values)
    assert n_steps == 5
    torch.testing.assert_close(values, flat(process, model), rtol=1e-5, atol=1e-6)


def test_a_batch_in_parts_and_a_clipped_gradient(process):
    rule, names, make = RULES["nesterov"]
    model = twin(process)
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    process.begin_phase(rule, names, [torch.zeros(process.n_params)], 0, clip_norm=0.3)
    x, y, seed = batches(1)[0]
    process.train(x, y, seed, cuts=2)
    for some, labels in zip(x.chunk(2), y.chunk(2), strict=True):
        (F.cross_entropy(model(some), labels) / 2).backward()
    assert nn.utils.clip_grad_norm_(model.parameters(), 0.3) > 0.3
    optimizer.step()
    torch.testing.assert_close(process.end_phase(names)[1], flat(process, model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_spoilt_batch_takes_no_step(process, bad):
    rule, names, _ = RULES["sgd"]
    before = process.read(0, process.n_values)
    process.begin_phase(rule, names, [], 0)
    x, y, seed = batches(1)[0]
    said = process.train(x * bad, y, seed, most_loss=50.0)
    assert not said["is_usual"]
    n_steps, values, _ = process.end_phase(names)
    assert n_steps == 0 and torch.equal(values, before)


def test_a_loss_that_is_too_large_takes_no_step(process):
    rule, names, _ = RULES["sgd"]
    before = process.read(0, process.n_values)
    process.begin_phase(rule, names, [], 0)
    x, y, seed = batches(1)[0]
    assert not process.train(x, y, seed, most_loss=1e-3)["is_usual"]
    assert torch.equal(process.end_phase(names)[1], before)
