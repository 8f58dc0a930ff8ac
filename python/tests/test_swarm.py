"""The real part in Rust: peers of one process, with every strategy, and against plain PyTorch loops."""

import copy
import gc
import itertools
import queue
import threading
import weakref

import pytest
import torch
from driver import flat
from test_worker import data
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset

import nettorrent

pytest.importorskip("nettorrent._core")

STRATEGIES = [
    "best-peer",
    "diloco",
    "downpour",
    "gossip",
    "local-sgd",
    "manager-worker",
    "moshpit",
    "parameter-server",
    "partial-gradient",
    "ring-all-reduce",
    "ring-reduce",
    "step-wise",
    "threshold",
    "two-level",
]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fit(model, loss, *args, **options):
    return nettorrent.fit(model, loss, *args, **{"progress": False, **options})


def blobs(n, seed):
    """Three clouds that are easily told apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centres = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    return centres[labels] + 0.6 * torch.randn(n, 2, generator=generator), labels


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_learns(strategy):
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    result = fit(
        model,
        F.cross_entropy,
        blobs(384, 1),
        blobs(192, 2),
        optimizer=optimizer,
        epochs=6,
        batch=24,
        peers=3,
        strategy=strategy,
    )
    assert result.ending == "finished" and result.epoch == 6 and len(result.history) == 6
    assert result.accuracy > 0.9 and result.loss < 0.5
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())
    norm = model[1]
    assert norm.running_var.min() > 0 and norm.num_batches_tracked > 0
    # The model holds what was tested last.
    x, y = blobs(192, 2)
    with torch.no_grad():
        assert F.cross_entropy(model.eval()(x), y).item() == pytest.approx(result.loss, rel=1e-4)


# Against plain loops.


class Told(Dataset):
    """Samples that come with their indices, so that a step function can tell which it got."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.y[k], k


class Recorder:
    """A step function that notes the samples and the seed of each batch, for each peer by its model."""

    def __init__(self, loss):
        self.loss = loss
        self.batches = {}
        self._lock = threading.Lock()

    def __call__(self, model, batch):
        x, y, samples = batch
        if model.training:
            with self._lock:
                self.batches.setdefault(id(model), []).append((samples.tolist(), torch.initial_seed()))
        return self.loss(model(x), y)


class Tied(nn.Module):
    """Predicts the next token; input and output embedding are one, and the positions are frozen."""

    def __init__(self, norm_bias=True):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.places = nn.Embedding(6, 8)
        self.places.weight.requires_grad_(False)
        self.hidden = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(torch.tanh(self.hidden(x)))).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 7, batch_first=True)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        return self.head(self.rnn(x.flatten(1, 2))[0][:, -1])


def seeded(make):
    torch.manual_seed(3)
    return make()


def attention():
    layer = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.1, batch_first=True)
    return nn.Sequential(nn.Flatten(1, 2), layer, nn.Flatten(), nn.Linear(36, 3))


def conv(dropout=0.2, norm=True):
    first = nn.Conv2d(1, 4, 3, bias=not norm)
    middle = [nn.BatchNorm2d(4) if norm else nn.Identity(), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout)]
    return nn.Sequential(first, *middle, nn.Linear(64, 3))


def dense():
    layers = [nn.Flatten(), nn.Linear(36, 12), nn.GELU(), nn.LayerNorm(12), nn.Dropout(0.1), nn.Linear(12, 3)]
    return nn.Sequential(*layers)


def wide():
    """Its gradient is handed over in several parts."""
    layers = [nn.Linear(36, 400), nn.Tanh(), nn.Linear(400, 1400), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1400, 3)]
    return nn.Sequential(nn.Flatten(), *layers)


def half_frozen():
    model = dense()
    model[1].weight.requires_grad_(False)
    return model


def regression():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 10), nn.Tanh(), nn.Linear(10, 1), nn.Flatten(0))


def pictures():
    return data(88)


def tokens():
    text = torch.randint(0, 11, (88, 6), generator=torch.Generator().manual_seed(4))
    return text, text.roll(-1, 1)


def numbers():
    x, _ = data(88)
    return x, x.mean((1, 2, 3))


def in_groups(model):
    first, *others = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD([{"params": [first], "lr": 0.01}, {"params": others, "momentum": 0.5}], lr=0.1)


CLASSES = F.cross_entropy
COMBINATIONS = {
    "conv, sgd": (conv, pictures, CLASSES, lambda m: torch.optim.SGD(m.parameters(), lr=0.1)),
    "conv, groups": (conv, pictures, CLASSES, in_groups),
    "conv, adamw": (conv, pictures, CLASSES, lambda m: torch.optim.AdamW(m.parameters(), lr=0.01)),
    "dense, nesterov": (
        dense,
        pictures,
        CLASSES,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    ),
    "dense, amsgrad": (dense, pictures, CLASSES, lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True)),
    "half frozen, adagrad": (
        half_frozen,
        pictures,
        CLASSES,
        lambda m: torch.optim.Adagrad([p for p in m.parameters() if p.requires_grad], lr=0.05),
    ),
    "tied, adam": (
        Tied,
        tokens,
        CLASSES,
        lambda m: torch.optim.Adam([p for p in m.parameters() if p.requires_grad], lr=0.01),
    ),
    "recurrent, rmsprop": (
        Recurrent,
        pictures,
        CLASSES,
        lambda m: torch.optim.RMSprop(m.parameters(), lr=0.005, momentum=0.5, centered=True),
    ),
    "attention, momentum": (
        attention,
        pictures,
        CLASSES,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9),
    ),
    "wide, momentum": (
        wide,
        pictures,
        CLASSES,
        lambda m: torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9),
    ),
    "regression, nadam": (regression, numbers, F.mse_loss, lambda m: torch.optim.NAdam(m.parameters(), lr=0.01)),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_one_peer_is_a_plain_loop_bit_for_bit(name):
    make, samples, loss, optimizer = COMBINATIONS[name]
    model, theirs, (x, y), recorder = seeded(make), seeded(make), samples(), Recorder(loss)
    result = fit(model, None, Told(x, y), optimizer=optimizer(model), step=recorder, epochs=2, batch=12)
    (batches,) = recorder.batches.values()
    assert len(batches) == result.step == 16
    for epoch in (batches[:8], batches[8:]):
        assert sorted(k for taken, _ in epoch for k in taken) == list(range(88))

    step = optimizer(theirs)
    for taken, seed in batches:
        torch.manual_seed(seed)
        step.zero_grad()
        loss(theirs(x[taken]), y[taken]).backward()
        step.step()
    for (which, ours), wanted in zip(model.state_dict().items(), theirs.state_dict().values(), strict=True):
        if which in dict(model.named_parameters()):
            assert torch.equal(ours, wanted), which
        else:
            torch.testing.assert_close(ours, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_two_peers_average_gradients_as_ddp_does(name):
    make, samples, loss, optimizer = COMBINATIONS[name]
    model, theirs, (x, y), recorder = seeded(make), seeded(make), samples(), Recorder(loss)
    options = {"epochs": 2, "batch": 13, "peers": 2, "job": {"swarm": {"work": "equal"}}}
    result = fit(model, None, Told(x, y), optimizer=optimizer(model), step=recorder, **options)
    ours, others = recorder.batches.values()
    assert len(ours) == len(others) == result.step
    assert all(one[1] != other[1] for one, other in zip(ours, others, strict=True)), "their randomness is their own"

    step = optimizer(theirs)
    trained = [p for group in step.param_groups for p in group["params"]]
    for parts in zip(ours, others, strict=True):
        n = sum(len(taken) for taken, _ in parts)
        replicas = []
        for taken, seed in parts:
            replica = copy.deepcopy(theirs)
            torch.manual_seed(seed)
            (loss(replica(x[taken]), y[taken]) * (len(taken) / n)).backward()
            replicas.append((replica, len(taken) / n))
        names = [which for which, p in theirs.named_parameters() if any(p is q for q in trained)]
        for which in names:
            grads = [replica.get_parameter(which).grad for replica, _ in replicas]
            theirs.get_parameter(which).grad = sum(grad for grad in grads if grad is not None)
        step.step()
        for which, buffer in theirs.named_buffers():
            mean = sum(replica.get_buffer(which).double() * share for replica, share in replicas)
            buffer.copy_(mean.round() if not buffer.is_floating_point() else mean)
    for (which, tensor), wanted in zip(model.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(
            tensor, wanted, rtol=1e-4, atol=1e-5, msg=lambda text, which=which: f"{which}: {text}"
        )


# What models, data and loops may be like.


def test_an_iterable_data_set():
    class Stream(IterableDataset):
        def __iter__(self):
            x, y = blobs(100, 5)
            return iter(zip(x, y, strict=True))

    for strategy in ("ring-all-reduce", "local-sgd"):
        model = small_net()
        result = fit(
            model,
            F.cross_entropy,
            Stream(),
            blobs(90, 2),
            optimizer="adam",
            lr=0.02,
            samples_per_epoch=120,
            epochs=4,
            batch=20,
            peers=2,
            strategy=strategy,
        )
        assert result.accuracy > 0.9


@pytest.mark.parametrize("strategy", ["ring-all-reduce", "diloco"])
def test_parameters_of_half_the_bits(strategy):
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3)).bfloat16()
    x, y = blobs(192, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    result = fit(
        model,
        lambda output, target: F.cross_entropy(output.float(), target),
        (x.bfloat16(), y),
        optimizer=optimizer,
        epochs=4,
        batch=16,
        peers=2,
        strategy=strategy,
    )
    assert all(p.dtype == torch.bfloat16 and p.isfinite().all() for p in model.parameters())
    assert result.history[-1]["train_accuracy"] > 0.9


def test_micro_batches_in_fit_are_one_batch():
    def trained(accumulate):
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
        for k, p in enumerate(model.parameters()):
            nn.init.normal_(p, generator=torch.Generator().manual_seed(k))
        options = {"optimizer": "sgd", "lr": 0.1, "epochs": 2, "batch": 15, "accumulate": accumulate}
        fit(model, F.cross_entropy, blobs(60, 1), **options)
        return flat(model)

    torch.testing.assert_close(trained(4), trained(1))


def test_a_scheduled_rate_is_followed():
    x, y = blobs(64, 1)
    model, theirs, recorder = small_net(), small_net(), Recorder(F.cross_entropy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rates = []
    optimizer.register_step_pre_hook(lambda made, *_: rates.append(made.param_groups[0]["lr"]))
    options = {"step": recorder, "epochs": 3, "batch": 16, "schedule": {"kind": "step", "every": 1, "factor": 0.5}}
    fit(model, None, Told(x, y), optimizer=optimizer, **options)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert rates == pytest.approx([0.1] * 4 + [0.05] * 4 + [0.025] * 4)
    (batches,) = recorder.batches.values()
    step = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for (taken, seed), rate in zip(batches, rates, strict=True):
        torch.manual_seed(seed)
        step.zero_grad()
        step.param_groups[0]["lr"] = rate
        F.cross_entropy(theirs(x[taken]), y[taken]).backward()
        step.step()
    torch.testing.assert_close(flat(model), flat(theirs), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("strategy", ["ring-all-reduce", "local-sgd"])
def test_a_loop_with_clipping_micro_batches_and_a_scaler(strategy):
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    options = {"epochs": 3, "batch": 24, "accumulate": 2, "strategy": strategy, "progress": False}
    swarm = nettorrent.start(model, F.cross_entropy, blobs(192, 1), blobs(96, 2), optimizer=optimizer, **options)
    sizes, norms = [], []
    for x, y in swarm.batches():
        with torch.autocast("cpu", torch.bfloat16):
            output = model(x)
            loss = F.cross_entropy(output.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(swarm.optimizer)
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        swarm.step(loss, output, y, scaler=scaler)
        sizes.append(len(x))
    assert sizes == [12] * 48 and all(0 < norm < 100 for norm in norms)
    assert swarm.result.ending == "finished" and swarm.result.accuracy > 0.9


@pytest.mark.parametrize("overlap", [False, True])
def test_an_own_loop_is_what_fit_does(overlap):
    def make():
        model = small_net()
        options = {"epochs": 2, "batch": 16, "strategy": "ring-all-reduce", "progress": False}
        return model, {"optimizer": torch.optim.Adam(model.parameters(), lr=0.01), **options}

    theirs, options = make()
    nettorrent.fit(theirs, F.cross_entropy, blobs(64, 1), **options)
    ours, options = make()
    swarm = nettorrent.start(ours, data=blobs(64, 1), **options)
    for x, y in swarm.batches(overlap=overlap):
        loss = F.cross_entropy(ours(x), y)
        loss.backward()
        swarm.step(loss)
    assert torch.equal(flat(ours), flat(theirs))


# How runs end.


def test_a_resumed_run_goes_on_where_it_was_left():
    def make():
        model = small_net()
        return model, torch.optim.Adam(model.parameters(), lr=0.01)

    shared = {"batch": 16, "strategy": "ring-all-reduce"}
    whole, optimizer = make()
    fit(whole, F.cross_entropy, blobs(64, 1), optimizer=optimizer, epochs=4, **shared)

    first, optimizer = make()
    swarm = nettorrent.start(first, data=blobs(64, 1), optimizer=optimizer, epochs=4, progress=False, **shared)
    for x, y in itertools.islice(swarm.batches(), 7):
        loss = F.cross_entropy(first(x), y)
        loss.backward()
        swarm.step(loss)
    assert swarm.result.ending == "left" and swarm.result.checkpoint

    second, optimizer = make()
    nn.init.zeros_(second[0].weight)
    shared["resume"] = swarm.folder
    result = fit(second, F.cross_entropy, blobs(64, 1), optimizer=optimizer, epochs=4, **shared)
    assert result.ending == "finished" and result.step == 16 and result.folder == swarm.folder
    torch.testing.assert_close(flat(second), flat(whole))


def test_an_exception_in_user_code_is_raised_as_it_was_and_the_model_is_left_in_peace():
    calls = itertools.count()

    def loss(output, target):
        if next(calls) == 9:
            raise ValueError("this batch is bad")
        return F.cross_entropy(output, target)

    for peers in (1, 3):
        calls = itertools.count()
        with pytest.raises(ValueError, match="this batch is bad") as caught:
            fit(small_net(), loss, blobs(96, 1), optimizer="sgd", batch=12, peers=peers)
        assert [entry.name for entry in caught.traceback][-1] == "loss"


def test_an_exception_in_a_callback_ends_the_run():
    def on_event(event):
        if event["event"] == "epoch":
            raise ValueError("I do not like this epoch")

    with pytest.raises(ValueError, match="I do not like"):
        fit(small_net(), F.cross_entropy, blobs(96, 1), optimizer="sgd", batch=12, callbacks=[on_event])


def test_settings_that_make_no_sense_are_told():
    model = small_net()
    with pytest.raises(nettorrent.SwarmError, match="did you mean `ring-all-reduce`"):
        fit(model, F.cross_entropy, blobs(96, 1), strategy="ring-allreduce")
    assert not model[1]._forward_pre_hooks, "the model is as it was"
    with pytest.raises(ValueError, match="epoch"):
        fit(small_net(), F.cross_entropy, blobs(96, 1), job={"epoch": 3})


# What is told of a run.


def assert_holds(model, saved):
    """The model's values are those of a checkpoint. There, counters are means of what peers have counted."""
    for name, tensor in model.state_dict().items():
        wanted = saved.pop(name)
        assert torch.equal(tensor, wanted if tensor.is_floating_point() else wanted.round().to(tensor.dtype)), name
    assert not saved


def test_metrics_and_checkpoints_are_those_of_the_model():
    safetensors = pytest.importorskip("safetensors.torch")
    model = small_net()
    x, y = blobs(90, 2)
    metrics = {"margin": lambda output, target: output.softmax(1).gather(1, target[:, None]).mean()}
    result = fit(
        model, F.cross_entropy, blobs(96, 1), (x, y), optimizer="adam", lr=0.01, epochs=3, peers=2, metrics=metrics
    )
    with torch.no_grad():
        output = model.eval()(x)
    assert result.metrics["margin"] == pytest.approx(metrics["margin"](output, y).item(), rel=1e-4)
    assert result.accuracy == pytest.approx((output.argmax(1) == y).float().mean().item())
    assert_holds(model, safetensors.load_file(f"{result.checkpoint}/model.safetensors"))


@pytest.mark.parametrize("strategy", ["ring-all-reduce", "gossip", "diloco"])
def test_the_model_ends_with_the_values_of_the_swarm(strategy):
    safetensors = pytest.importorskip("safetensors.torch")
    model = small_net()
    options = {"optimizer": "sgd", "lr": 0.1, "epochs": 2, "batch": 24, "peers": 3, "strategy": strategy}
    result = fit(model, F.cross_entropy, blobs(96, 1), **options)
    assert_holds(model, safetensors.load_file(f"{result.checkpoint}/model.safetensors"))


def test_a_test_of_ones_own_in_a_loop_of_ones_own():
    model = small_net()
    x, y = blobs(90, 2)
    told = []

    def evaluate():
        output = model(x)
        told.append(((output.argmax(1) == y).sum().item(), len(y)))
        return 90 * F.cross_entropy(output, y).item(), *told[-1]

    options = {"optimizer": "sgd", "lr": 0.1, "epochs": 2, "batch": 16, "evaluate": evaluate, "progress": False}
    swarm = nettorrent.start(model, **options)
    for inputs, target in swarm.batches(blobs(96, 1)):
        loss = F.cross_entropy(model(inputs), target)
        loss.backward()
        swarm.step(loss)
    assert len(told) == 2 and swarm.result.accuracy == pytest.approx(told[-1][0] / 90)
    assert swarm.result.loss < swarm.history[0]["test_loss"] + 0.5


def test_samples_that_are_not_finite_are_left_out():
    x, y = blobs(96, 1)
    x[17] = torch.nan
    for strategy in ("ring-all-reduce", "diloco"):
        for peers in (1, 2):
            model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
            events = []
            result = fit(
                model,
                F.cross_entropy,
                (x, y),
                blobs(90, 2),
                optimizer="sgd",
                lr=0.1,
                epochs=3,
                batch=16,
                peers=peers,
                strategy=strategy,
                callbacks=[events.append],
            )
            assert result.ending == "finished" and flat(model).isfinite().all() and result.accuracy > 0.5


def test_the_data_may_come_with_the_loop_on_both_sides():
    tickets, ends = queue.Queue(), []

    def train(swarm, model):
        batches = swarm.batches(blobs(96, 1))
        tickets.put(swarm.ticket)
        for inputs, target in batches:
            loss = F.cross_entropy(model(inputs), target)
            loss.backward()
            swarm.step(loss)
        ends.append(swarm.result)

    def start():
        model = small_net()
        train(nettorrent.start(model, optimizer="sgd", epochs=3, batch=16, wait_for=2, progress=False), model)

    first = threading.Thread(target=start, daemon=True)
    first.start()
    model = small_net()
    train(nettorrent.join(tickets.get(timeout=60), model, optimizer="sgd", progress=False), model)
    first.join(60)
    assert [end.ending for end in ends] == ["finished"] * 2 and ends[0].step == ends[1].step


def test_a_swarm_that_is_not_trained_with_lets_go():
    with nettorrent.start(small_net(), F.cross_entropy, blobs(96, 1), progress=False) as swarm:
        assert swarm.ticket
    with pytest.raises(nettorrent.SwarmError):
        nettorrent.join(swarm.ticket, small_net(), F.cross_entropy, blobs(96, 1), progress=False).run()


@pytest.mark.parametrize("progress", [False, True])
def test_a_run_that_is_over_holds_no_model_and_no_data(progress):
    def train():
        inputs, labels = data()
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        optimizer = torch.optim.AdamW(model.parameters())
        nettorrent.fit(model, F.cross_entropy, (inputs, labels), optimizer=optimizer, epochs=1, batch=16, progress=progress)
        return [weakref.ref(held) for held in (model, inputs, optimizer)]

    # A GPU's memory must not wait for the garbage collector, which does not know of it.
    gc.disable()
    try:
        held = train()
        assert [reference() for reference in held] == [None] * 3
    finally:
        gc.enable()
