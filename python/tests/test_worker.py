import copy
import threading

import pytest
import torch
from driver import Peer, flat
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from nettorrent._worker import Left, TorchWorker

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "dampened": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.5),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.05),
}


def data(n=48, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 6, 6, generator=generator)
    return x, (x.mean((1, 2, 3)) > 0).long() + (x[:, 0, 0, 0] > 0.5).long()


def net(seed=0, norm=True, dropout=0.2, channels=5):
    torch.manual_seed(seed)
    n = channels
    layers = [nn.Conv2d(1, n, 3), nn.BatchNorm2d(n) if norm else nn.Identity(), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(dropout), nn.Linear(16 * n, 3))


def batches(n_batches, n=48, size=8):
    generator = torch.Generator().manual_seed(7)
    return [(torch.randperm(n, generator=generator)[:size].tolist(), 1000 + k) for k in range(n_batches)]


def plain(model, optimizer, plan, x, y):
    """The training loop as anyone would write it."""
    losses = []
    for samples, seed in plan:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[samples]), y[samples])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("phases", [[12], [1, 4, 7]])
def test_local_steps_are_those_of_a_plain_loop_bit_for_bit(name, phases):
    x, y = data()
    ours, theirs = net(), net()
    plan = batches(sum(phases))
    losses = plain(theirs, OPTIMIZERS[name](theirs.parameters()), plan, x, y)
    peer = Peer(TorchWorker(ours, F.cross_entropy, (x, y), optimizer=OPTIMIZERS[name]))
    scores = []
    for n in phases:
        scores += peer.local(plan[len(scores) : len(scores) + n])
    assert peer.n_steps == len(plan)
    assert torch.equal(peer.values, flat(theirs))
    assert [loss_sum / n for loss_sum, _, n, _ in scores] == losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_new_worker_goes_on_where_another_stopped(name):
    x, y = data()
    theirs, plan = net(), batches(8)
    plain(theirs, OPTIMIZERS[name](theirs.parameters()), plan, x, y)
    peer = Peer(TorchWorker(net(), F.cross_entropy, (x, y), optimizer=OPTIMIZERS[name]))
    peer.local(plan[:3])
    peer.worker = TorchWorker(net(seed=5), F.cross_entropy, (x, y), optimizer=OPTIMIZERS[name])
    peer.local(plan[3:])
    assert torch.equal(peer.values, flat(theirs))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradient_and_step_are_a_plain_loop_too(name):
    x, y = data()
    theirs, plan = net(), batches(5)
    plain(theirs, OPTIMIZERS[name](theirs.parameters()), plan, x, y)
    peer = Peer(TorchWorker(net(), F.cross_entropy, (x, y), optimizer=OPTIMIZERS[name]))
    for samples, seed in plan:
        peer.step(peer.gradient(samples, seed)[1])
    n = peer.n_params
    assert torch.equal(peer.values[:n], flat(theirs)[:n])
    torch.testing.assert_close(peer.values, flat(theirs))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_mean_of_two_half_batches_is_the_whole(name):
    x, y = data()
    theirs, plan = net(norm=False, dropout=0), batches(4)
    plain(theirs, OPTIMIZERS[name](theirs.parameters()), plan, x, y)
    peer = Peer(TorchWorker(net(norm=False, dropout=0), F.cross_entropy, (x, y), optimizer=OPTIMIZERS[name]))
    for samples, seed in plan:
        halves = [peer.gradient(samples[k::2], seed)[1] for k in range(2)]
        peer.step((halves[0] + halves[1]) / 2)
    tolerance = 0.05 if name == "rprop" else 1e-4  # Rprop goes by the sign of gradients, also of tiny ones.
    torch.testing.assert_close(peer.values, flat(theirs), rtol=1e-3, atol=tolerance)


def test_change_is_what_a_step_adds():
    x, y = data()
    stepped, changed = (Peer(TorchWorker(net(), F.cross_entropy, (x, y), optimizer="adamw", lr=0.01)) for _ in range(2))
    for samples, seed in batches(3):
        gradient = stepped.gradient(samples, seed)[1]
        stepped.step(gradient, lr=0.5)
        changed.values += changed.change(gradient, lr=0.5)
    torch.testing.assert_close(changed.values, stepped.values)
    assert all(torch.allclose(a, b) for a, b in zip(changed.vectors, stepped.vectors))


def test_the_rate_is_a_factor_on_each_groups_own():
    x, y = data()

    def two_rates(model, factor=1.0):
        groups = [
            {"params": model[0].parameters(), "lr": 0.1 * factor},
            {"params": model[5].parameters(), "lr": 0.3 * factor},
        ]
        return torch.optim.SGD(groups + [{"params": model[1].parameters()}], lr=0.01 * factor)

    theirs, plan = net(), batches(3)
    plain(theirs, two_rates(theirs, 0.5), plan, x, y)
    ours = net()
    optimizer = two_rates(ours)
    peer = Peer(TorchWorker(ours, F.cross_entropy, (x, y), optimizer=optimizer))
    peer.local(plan, lr=0.5)
    assert torch.equal(peer.values, flat(theirs))
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.3, 0.01]


def test_layout_has_tied_ones_once_and_frozen_ones_at_the_end():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight
            self.frozen, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
            self.frozen.requires_grad_(False)
            self.register_buffer("mask", torch.ones(9), persistent=False)

        def forward(self, k):
            return self.head(self.norm(self.frozen(self.embed(k))))

    k = torch.arange(7)
    peer = Peer(TorchWorker(Tied(), F.cross_entropy, (k, k), optimizer="sgd", lr=0.1))
    assert peer.worker.tensors() == [
        ("embed.weight", [7, 4], "parameter"),
        ("norm.weight", [4], "parameter"),
        ("norm.bias", [4], "parameter"),
        ("norm.running_mean", [4], "buffer"),
        ("norm.running_var", [4], "buffer"),
        ("norm.num_batches_tracked", [], "buffer"),
        ("frozen.weight", [4, 4], "frozen"),
        ("frozen.bias", [4], "frozen"),
    ]
    score, gradient = peer.gradient([0, 1, 2], 1)
    assert score[2] == 3 and gradient[36:40].any()
    assert gradient[44] == -1 and not gradient[45:].any()


def test_parameters_that_the_optimizer_does_not_have_stay():
    x, y = data()
    model = net()
    peer = Peer(TorchWorker(model, F.cross_entropy, (x, y), optimizer=torch.optim.SGD(model[5].parameters(), lr=0.1)))
    assert [name for name, _, kind in peer.worker.tensors() if kind == "parameter"] == ["5.weight", "5.bias"]
    with pytest.raises(ValueError, match="not the model's"):
        TorchWorker(net(), F.cross_entropy, (x, y), optimizer=torch.optim.SGD(net().parameters(), lr=0.1))


def test_bfloat16_parameters_stay_what_they_are():
    x, y = data()
    ours, theirs = net(norm=False).bfloat16(), net(norm=False).bfloat16()
    plan = batches(4)
    plain(theirs, torch.optim.AdamW(theirs.parameters(), lr=0.01), plan, x.bfloat16(), y)
    peer = Peer(TorchWorker(ours, F.cross_entropy, (x.bfloat16(), y), optimizer="adamw", lr=0.01))
    peer.local(plan[:2])
    peer.local(plan[2:])
    assert torch.equal(peer.values, flat(theirs)) and ours[0].weight.dtype == torch.bfloat16


def test_no_step_where_the_loss_is_unusual():
    x, y = data()
    x[3] = torch.nan
    peer = Peer(TorchWorker(net(), F.cross_entropy, (x, y), optimizer="adamw"))
    before = peer.values.clone()
    assert peer.local([([2, 3], 1)]) == [None]
    assert peer.local([([4, 5], 1)], most_loss=1e-9) == [None]
    assert peer.n_steps == 0 and torch.equal(peer.values, before)


def test_no_step_where_the_gradient_is_not_finite():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return (self.w * x).abs().sqrt().sum()

    peer = Peer(TorchWorker(Root(), None, torch.ones(4, 1), optimizer="sgd", lr=0.1))
    assert peer.local([([0, 1], 1)]) == [None]


def test_accumulation_and_clipping():
    x, y = data()
    theirs, plan = net(norm=False, dropout=0), batches(3)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for samples, _ in plan:
        optimizer.zero_grad()
        F.cross_entropy(theirs(x[samples]), y[samples]).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
        optimizer.step()
    model = net(norm=False, dropout=0)
    options = {"optimizer": "sgd", "lr": 0.5, "accumulate": 3, "clip_norm": 0.05}
    peer = Peer(TorchWorker(model, F.cross_entropy, (x, y), **options))
    peer.local(plan[:2])
    peer.step(peer.gradient(*plan[2])[1])
    torch.testing.assert_close(peer.values, flat(theirs))


class Noisy(Dataset):
    """Samples that are augmented at random."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k] + 0.1 * torch.randn(1, 6, 6), int(self.y[k])


def test_a_seed_decides_all_that_is_random_also_with_other_workers_in_the_process():
    x, y = data()
    peers = [Peer(TorchWorker(net(), F.cross_entropy, Noisy(x, y), optimizer="sgd", lr=0.1)) for _ in range(4)]
    alone = copy.deepcopy(peers[0])
    alone.local(batches(20))
    threads = [threading.Thread(target=peer.local, args=(batches(20),)) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(peer.values, alone.values) for peer in peers)


class Records:
    """A data set as Hugging Face's: dicts by index, lists of them at once, columns by name."""

    column_names = ["x", "label"]

    def __init__(self, x, y):
        self.columns = {"x": x, "label": y}

    def __len__(self):
        return len(self.columns["x"])

    def __getitem__(self, key):
        return self.columns[key].tolist() if isinstance(key, str) else {n: c[key] for n, c in self.columns.items()}

    def __getitems__(self, keys):
        return [self[k] for k in keys]


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        return iter(zip(self.x, self.y))


def test_data_of_many_kinds_give_the_same_gradient():
    x, y = data()
    kinds = [
        (x, y),
        (x.numpy(), y.numpy()),
        TensorDataset(x, y),
        list(zip(x, y)),
        Subset(TensorDataset(x, y), range(48)),
        DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True),
        DataLoader(TensorDataset(x, y), collate_fn=lambda items: tuple(map(torch.stack, zip(*items)))),
    ]
    samples = list(range(8))
    wanted = Peer(TorchWorker(net(), F.cross_entropy, kinds[0])).gradient(samples, 3)[1]
    for kind in kinds:
        peer = Peer(TorchWorker(net(), F.cross_entropy, kind))
        assert torch.equal(peer.gradient(samples, 3)[1], wanted)
        assert peer.worker.labels() == (None if isinstance(kind, list) else y.tolist())
    streamed = Peer(TorchWorker(net(), F.cross_entropy, Stream(x, y), samples_per_epoch=48))
    assert torch.equal(streamed.gradient([40] * 8, 3)[1], wanted)
    for _ in range(6):
        streamed.gradient(samples, 3)
    with pytest.raises(ValueError, match="samples_per_epoch"):
        TorchWorker(net(), F.cross_entropy, Stream(x, y))
    with pytest.raises(TypeError, match="Dataset"):
        TorchWorker(net(), F.cross_entropy, 5)
    with pytest.warns(UserWarning, match="WeightedRandomSampler"):
        loader = DataLoader(TensorDataset(x, y), sampler=WeightedRandomSampler([1.0] * 48, 48))
        TorchWorker(net(), F.cross_entropy, loader)


class WithLoss(nn.Module):
    """A model that gives its loss, as Hugging Face's do."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels=None):
        logits = self.net(x)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def test_losses_from_models_and_step_functions():
    x, y = data()
    (_, right, n, _), wanted = Peer(TorchWorker(net(), F.cross_entropy, (x, y))).gradient([1, 2, 3], 3)

    def rename(items):
        return {"x": torch.stack([i["x"] for i in items]), "labels": torch.stack([i["label"] for i in items])}

    def step(model, batch):
        output = model(batch[0])
        return F.cross_entropy(output, batch[1]), output

    for worker in (
        TorchWorker(WithLoss(), None, {"x": x, "labels": y}),
        TorchWorker(WithLoss(), None, Records(x, y), collate=rename),
        TorchWorker(WithLoss(), F.cross_entropy, Records(x, y)),
        TorchWorker(net(), None, (x, y), step=step),
    ):
        score, gradient = Peer(worker).gradient([1, 2, 3], 3)
        assert torch.equal(gradient, wanted) and score[1:3] == (right, n)
        assert worker.labels() == y.tolist()
    with pytest.raises(TypeError, match="gives no loss"):
        Peer(TorchWorker(net(), None, x)).gradient([0], 0)
    with pytest.raises(ValueError, match="reduction"):
        TorchWorker(net(), nn.CrossEntropyLoss(reduction="sum"), (x, y))


def test_tests_are_in_evaluation_mode_and_keep_each_modules_mode():
    x, y = data()
    model = net()
    model[1].eval()
    metrics = {"largest": lambda output, target: output.max(), "two": lambda output, target: 2.0}
    peer = Peer(TorchWorker(model, F.cross_entropy, (x, y), test=(x[:21], y[:21]), metrics=metrics, batch=5))
    assert peer.worker.metrics == ["largest", "two"] and peer.worker.n_test == 21
    before = peer.values.clone()
    parts = [peer.test(0, 13), peer.test(13, 21)]
    twin = net().eval()
    with torch.no_grad():
        output = twin(x[:21])
    assert sum(part[1] for part in parts) == (output.argmax(1) == y[:21]).sum()
    assert sum(part[0] for part in parts) == pytest.approx(21 * F.cross_entropy(output, y[:21]).item())
    assert sum(part[3][1] for part in parts) == 42.0
    assert model.training and model[4].training and not model[1].training
    assert peer.score(list(range(21)))[:3] == pytest.approx((parts[0][0] + parts[1][0], parts[0][1] + parts[1][1], 21))
    assert torch.equal(peer.values, before)


def test_errors_of_user_code_pass_unchanged():
    class Oops(Exception):
        pass

    def loss(output, target):
        raise Oops("mine")

    x, y = data()
    with pytest.raises(Oops, match="mine"):
        Peer(TorchWorker(net(), loss, (x, y))).gradient([0], 0)


def test_autocast_and_compile_are_passed_on():
    x, y = data()
    peer = Peer(TorchWorker(net(), F.cross_entropy, (x, y), autocast=torch.bfloat16))
    exact = Peer(TorchWorker(net(), F.cross_entropy, (x, y)))
    rough, fine = peer.gradient([0, 1, 2], 3)[1], exact.gradient([0, 1, 2], 3)[1]
    assert not torch.equal(rough, fine)
    torch.testing.assert_close(rough, fine, atol=0.1, rtol=0.1)
    with pytest.raises(ValueError, match="GradScaler"):
        TorchWorker(net(), F.cross_entropy, (x, y), autocast=torch.float16)


def test_a_lone_sample_passes_batch_norm_with_its_running_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    x, y = data()
    worker = TorchWorker(model, F.cross_entropy, (x, y), optimizer="sgd")
    peer = Peer(worker)
    (loss, *_), gradient = peer.gradient([3], 1)
    with torch.no_grad():
        assert loss == F.cross_entropy(copy.deepcopy(model).eval()(x[3:4]), y[3:4]).item()
    assert model[2].training and gradient[peer.n_params :].count_nonzero() == 0 and gradient.count_nonzero() > 0
    worker.close()
    with pytest.raises(ValueError, match="more than 1 value"):
        model(x[3:4])


def test_a_closed_worker_computes_no_more():
    worker = TorchWorker(net(), F.cross_entropy, data(), optimizer="sgd")
    peer = Peer(worker)
    worker.close()
    with pytest.raises(Left):
        peer.gradient([0, 1], 1)
