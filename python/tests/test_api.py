import io

import pytest
import torch
from driver import flat
from test_worker import data, net
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import nettorrent
from nettorrent._job import batch_in, check_optimizer, describe, make_job, to_toml
from nettorrent._progress import Progress


def test_fit_trains_and_loads_the_final_values(core, capsys):
    x, y = data()
    model = net(dropout=0)
    seen = []
    result = nettorrent.fit(
        model,
        F.cross_entropy,
        (x, y),
        test=(x, y),
        optimizer="adamw",
        lr=0.01,
        epochs=2,
        batch=16,
        callbacks=[seen.append],
        out="runs",
    )
    assert result.ending == "finished" and len(result.history) == 2 and result.checkpoint == "a-checkpoint"
    assert result.loss < 2 and 0 <= result.accuracy <= 1
    assert torch.equal(flat(model), core.saved)
    assert [event["event"] for event in seen] == ["start", "epoch", "epoch"]
    job, options = core.calls["local"]
    assert 'model = "Sequential"' in job and "custom = 2" in job and "batch = 16" in job and options == {"out": "runs"}
    assert "test accuracy" in capsys.readouterr().out


def test_several_peers_have_copies_and_learn_as_one_does(core):
    x, y = data()
    models = [net(norm=False, dropout=0) for _ in range(2)]
    for model, peers in zip(models, (1, 3)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        nettorrent.fit(model, F.cross_entropy, (x, y), optimizer=optimizer, batch=24, peers=peers, progress=False)
    torch.testing.assert_close(flat(models[0]), flat(models[1]))


def test_a_loaders_batch_size_is_the_default(core):
    nettorrent.fit(net(), F.cross_entropy, DataLoader(TensorDataset(*data()), batch_size=6), progress=False)
    assert "batch = 6\n" in core.calls["local"][0]


def test_start_run_and_events(core):
    swarm = nettorrent.start(net(), F.cross_entropy, data(), wait_for=2, deadline=30.0, progress=False)
    assert "deadline = 30.0" in core.calls["start"][0]
    assert swarm.ticket == "a-ticket" and core.calls["start"][1] == {"wait_for": 2}
    assert swarm.run().ending == "finished"
    with pytest.raises(RuntimeError, match="trains once"):
        swarm.run()
    swarm = nettorrent.start(net(), F.cross_entropy, data(), progress=False)
    assert [event["event"] for event in swarm.events()] == ["start", "epoch", "epoch"]
    assert swarm.result.ending == "finished" and len(swarm.history) == 2


def test_join_takes_the_swarms_batch(core):
    swarm = nettorrent.join("a-ticket", net(), F.cross_entropy, data(), progress=False)
    assert core.calls["join"][0] == "a-ticket" and swarm._worker._batch == 12
    assert swarm.run().ending == "finished"


def test_a_loop_of_ones_own_is_the_same_as_fit(core):
    x, y = data()
    theirs, ours = net(), net()
    nettorrent.fit(theirs, F.cross_entropy, (x, y), optimizer="sgd", lr=0.1, batch=12, progress=False)
    swarm = nettorrent.start(ours, optimizer="sgd", lr=0.1, batch=12, progress=False)
    with pytest.raises(RuntimeError, match="give them to start"):
        swarm.ticket
    sizes = []
    for a, b in swarm.batches((x, y)):
        sizes.append(len(a))
        output = ours(a)
        loss = F.cross_entropy(output, b)
        loss.backward()
        swarm.step(loss, output, b)
    assert sizes == [12] * 8 and swarm.result.ending == "finished"
    assert torch.equal(flat(ours), flat(theirs))


def test_failures_pass(core):
    core.problem = ConnectionError("nobody is there")
    for train in (
        lambda: nettorrent.fit(net(), F.cross_entropy, data(), progress=False),
        lambda: list(nettorrent.start(net(), F.cross_entropy, data(), progress=False).events()),
    ):
        with pytest.raises(ConnectionError, match="nobody"):
            train()
    with pytest.raises(ValueError, match="nothing to train on"):
        nettorrent.fit(net(), F.cross_entropy)


def test_leaving_events_leaves_the_swarm(core):
    with nettorrent.start(net(), F.cross_entropy, data(), progress=False) as swarm:
        for _ in swarm.events():
            break
    assert swarm._run.left.is_set()


def test_a_swarm_that_is_dropped_or_left_before_training_lets_go_of_the_peer(core):
    for let_go in (lambda swarm: swarm.leave(), lambda swarm: None):
        swarm = nettorrent.start(net(), F.cross_entropy, data(), progress=False)
        run = swarm._run
        let_go(swarm)
        del swarm
        with pytest.raises(nettorrent.Left, match="before training began"):
            run.run(None)


def test_leaving_a_loop_is_a_result(core):
    model = net()
    swarm = nettorrent.start(model, optimizer="sgd", batch=12, progress=False)
    for x, y in swarm.batches(data()):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        swarm.step(loss)
        break
    assert swarm.result.ending == "left"


def test_jobs_are_toml():
    tomllib = pytest.importorskip("tomllib")
    more = {
        "swarm": {"split": "class"},
        "checkpoint": {"every": 0},
        "data": {"mean": [0.5, 1.0], "name": 'a "name"'},
        "augment": None,
    }
    schedule = {"kind": "cosine", "warmup": 0.5}
    text = make_job(
        "Net",
        {"kind": "sgd", "lr": 0.5, "custom": 2},
        epochs=3,
        batch=8,
        seed=5,
        strategy="gossip",
        options={"period": 4, "fast": True},
        schedule=schedule,
        more=more,
    )
    job = tomllib.loads(text)
    assert job["swarm"] == {"strategy": "gossip", "split": "class", "options": {"period": 4, "fast": True}}
    assert (
        job["optimizer"] == {"kind": "sgd", "lr": 0.5, "custom": 2}
        and job["schedule"] == schedule
        and job["checkpoint"] == {"every": 0}
    )
    assert job["data"]["name"] == 'a "name"' and "augment" not in job and batch_in(text) == 8
    with pytest.raises(TypeError, match="cannot hold"):
        to_toml({"x": nn.Linear(1, 1)})


OPTIMIZERS = {
    "plain": (lambda p: torch.optim.SGD(p, lr=0.1), {"kind": "sgd", "lr": 0.1}),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), {"kind": "sgd", "lr": 0.1, "momentum": 0.9}),
    "nesterov": (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    "averaged": (lambda p: torch.optim.ASGD(p, lr=0.1), {"kind": "sgd", "lr": 0.1}),
    "rmsprop": (
        lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5),
        {"kind": "rmsprop", "lr": 0.1, "momentum": 0.5},
    ),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1), {"kind": "adagrad", "lr": 0.1}),
    "adam": (lambda p: torch.optim.Adam(p, lr=torch.tensor(0.125)), {"kind": "adam", "lr": 0.125}),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=0.1), {"kind": "adamw", "lr": 0.1}),
    "other": (lambda p: torch.optim.NAdam(p, lr=0.1), {"kind": "adamw", "lr": 0.1}),
    "no rate": (lambda p: torch.optim.SGD(p, lr=0.0), {"kind": "sgd", "lr": 1.0}),
    "groups": (lambda p: torch.optim.SGD([{"params": p, "lr": 0.2}], lr=0.1), {"kind": "sgd", "lr": 0.2}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_jobs_say_what_an_optimizer_is_like(name):
    make, wanted = OPTIMIZERS[name]
    assert describe(make(net().parameters()), 3) == {**wanted, "custom": 3}


def test_an_optimizer_that_is_not_the_swarms_is_told():
    kept = {"kind": "sgd", "lr": 0.1, "momentum": 0.9, "custom": 1}
    job = 'batch = 2\n\n[optimizer]\nkind = "sgd"\nlr = 0.10000000149011612\nmomentum = 0.8999999761581421\n'
    job += "nesterov = false\ncustom = 1\n\n[swarm]\nlr = 5\n"
    check_optimizer(kept, job)
    check_optimizer(kept, "batch = 2\n")
    others = {"kind": "adamw", "lr": 0.2, "momentum": 0.5, "nesterov": True, "custom": 2}
    for name, value in others.items():
        with pytest.raises(ValueError, match=f"{value} here and"):
            check_optimizer({**kept, name: value}, job)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_progress_is_a_line_an_epoch_and_on_terminals_one_that_is_rewritten(kind):
    stream = kind()
    progress = Progress(lambda: True, stream)
    progress(
        {
            "event": "start",
            "model": "Net",
            "n_params": 1234,
            "n_train": 100,
            "n_test": 10,
            "epochs": 2,
            "n_peers": 2,
            "strategy": "gossip",
        }
    )
    progress({"event": "progress", "epoch": 1, "n_samples": 50, "loss": 0.5, "accuracy": 0.25, "samples_per_s": 10.0})
    progress(
        {
            "event": "epoch",
            "epoch": 1,
            "train_loss": 0.5,
            "test_loss": 0.25,
            "test_accuracy": 0.75,
            "metrics": {"f1": 0.5},
            "seconds": 1.25,
        }
    )
    progress({"event": "stop"})
    lines = stream.getvalue().split("\n")
    assert lines[0] == "Net: 1,234 parameters, 100 samples, 2 peers, gossip"
    assert lines[1].endswith("epoch 1/2  train loss 0.5000  test loss 0.2500  test accuracy 75.00%  f1 0.5  1.2 s")
    assert ("epoch 1/2   50%  loss 0.5000  accuracy 25.00%  10.0 samples/s  0:15 left" in stream.getvalue()) == (
        kind is Terminal
    )
