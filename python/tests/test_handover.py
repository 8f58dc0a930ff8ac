"""Gradients that are handed over in parts while the backward pass goes on."""

import pytest
import torch
from driver import FakeRun, Giver, Peer, flat
from test_loop import SGD
from test_worker import batches, data, net
from torch import nn
from torch.nn import functional as F

from nettorrent._loop import Loop, LoopWorker
from nettorrent._worker import TorchWorker

SIZE = 40


def giver(peer):
    return Giver(peer.n_params, peer.n_values, SIZE)


def points():
    """Samples of six numbers in three classes."""
    return torch.randn(48, 6, generator=torch.Generator().manual_seed(3)), torch.arange(48) % 3


def parts(gradient, give):
    """A gradient in the buckets that were given."""
    return [gradient[start:stop] for start, stop in give.buckets[: len(give.given)]]


@pytest.mark.parametrize("norm", [False, True])
def test_a_worker_gives_what_it_writes_and_all_but_the_last_before_it_returns(norm):
    plain, ours = (Peer(TorchWorker(net(norm=norm), F.cross_entropy, data(), **SGD)) for _ in range(2))
    give = giver(ours)
    for k, (samples, seed) in enumerate(batches(4)):
        expected, gradient = plain.gradient(samples, seed), ours.gradient(samples, seed, give=give)
        assert gradient[0] == expected[0] and torch.equal(gradient[1], expected[1])
        # The first backward pass is only looked at; buffers follow at the end.
        n_params_buckets = len(give.buckets) - norm
        assert len(give.given) == (0 if k == 0 else n_params_buckets - 1) and n_params_buckets > 3
        assert all(map(torch.equal, give.given, parts(gradient[1], give)))
        plain.step(expected[1]), ours.step(gradient[1])


def test_buckets_are_given_while_the_backward_pass_goes_on():
    model = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3))
    worker = TorchWorker(model, F.cross_entropy, points(), **SGD)
    peer = Peer(worker)
    give, seen = giver(peer), []
    model[0].weight.register_hook(lambda _: seen.append(len(give.given)))
    for samples, seed in batches(2):
        peer.gradient(samples, seed, give=give)
    assert seen[0] == 0 and seen[1] >= 5


def test_parameters_without_a_gradient_give_zeros():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(50, 3)

        def forward(self, x):
            return self.used(x)

    peer = Peer(TorchWorker(Half(), F.cross_entropy, points(), **SGD))
    give = giver(peer)
    for samples, seed in batches(2):
        _, gradient = peer.gradient(samples, seed, give=give)
    assert gradient[21:].count_nonzero() == 0 and gradient[:21].all() and not gradient.isnan().any()


def test_a_parameter_whose_gradient_comes_in_parts_is_given_at_the_end():
    class Twice(torch.autograd.Function):
        """Runs a backward pass within a backward pass, as checkpoints that are computed anew do."""

        @staticmethod
        def forward(ctx, x, model):
            ctx.save_for_backward(x)
            ctx.model = model
            with torch.no_grad():
                return model(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                ctx.model(x).backward(grad)
            return x.grad, None

    class Recomputed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.first, self.shared, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x):
            x = Twice.apply(self.first(x), self.shared)
            return self.head(Twice.apply(x, self.shared))

    plain, ours = (Peer(TorchWorker(Recomputed(), F.cross_entropy, points(), **SGD)) for _ in range(2))
    give = giver(ours)
    for samples, seed in batches(3):
        assert torch.equal(plain.gradient(samples, seed)[1], ours.gradient(samples, seed, give=give)[1])
    assert give.given == []


def test_several_backward_passes_a_batch_are_not_overlapped():
    peer = Peer(TorchWorker(net(), F.cross_entropy, data(), **SGD, accumulate=2))
    give = giver(peer)
    for samples, seed in batches(3):
        peer.gradient(samples, seed, give=give)
    assert give.given == []


def overlapped(n_batches, **options):
    """A loop over a run that exchanges gradients, with what it gives."""
    model, gives = net(norm=False, dropout=0), []
    worker = LoopWorker(model, None, data(), **SGD, **options)

    def script(peer, told):
        gives.append(giver(peer))
        for samples, seed in batches(n_batches):
            peer.step(peer.gradient(samples, seed, give=gives[0])[1])

    worker.overlap()
    run = FakeRun(worker, script)
    return Loop(worker, run, lambda event: None), run, model, gives


def test_a_loop_of_ones_own_gives_buckets_before_its_step():
    loop, run, model, gives = overlapped(4)
    plain_loop, plain_run, plain_model, _ = overlapped(4)
    plain_loop._worker.overlaps = False
    n_given = []
    for x, y in loop.batches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        n_given.append(len(gives[0].given))
        loop.step(loss)
    assert n_given == [len(gives[0].buckets) - 1] * 4
    for x, y in plain_loop.batches():
        loss = F.cross_entropy(plain_model(x), y)
        loss.backward()
        plain_loop.step(loss)
    assert torch.equal(run.peer.values, plain_run.peer.values) and run.peer.n_steps == 4


def clip(loop, model, loss):
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def replace(loop, model, loss):
    loss.backward()
    model[0].weight.grad = model[0].weight.grad * 2


def twice(loop, model, loss):
    loss.backward(retain_graph=True)
    loss.backward()


def scaled(loop, model, loss):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss).backward()
    loop.step(loss, scaler=scaler)


@pytest.mark.parametrize(
    ("after", "problem"),
    [(clip, "changed after"), (replace, "changed after"), (twice, "twice for one batch"), (scaled, "GradScaler")],
)
def test_gradients_that_were_not_final_are_refused_before_the_last_bucket(after, problem):
    loop, run, model, gives = overlapped(4)
    with pytest.raises(RuntimeError, match=problem):
        for x, y in loop.batches():
            loss = F.cross_entropy(model(x), y)
            after(loop, model, loss)
            loop.step(loss)
    assert run.left.is_set() and run.peer.n_steps == 0 and len(gives[0].given) < len(gives[0].buckets)


def test_overlap_goes_with_one_backward_pass_a_batch():
    with pytest.raises(ValueError, match="leave out accumulate"):
        LoopWorker(net(), None, data(), **SGD, accumulate=2).overlap()


def test_values_that_are_there_are_not_brought_again(monkeypatch):
    worker = TorchWorker(net(), F.cross_entropy, data(), **SGD)
    peer, loads = Peer(worker), []
    load = worker.layout.load
    monkeypatch.setattr(worker.layout, "load", lambda values: (loads.append(1), load(values)))
    twin = Peer(TorchWorker(net(), F.cross_entropy, data(), **SGD))
    for k, (samples, seed) in enumerate(batches(4)):
        _, gradient = peer.gradient(samples, seed, has_values=k > 0)
        peer.step(gradient, there=(True, k > 0))
        twin.step(twin.gradient(samples, seed)[1])
        assert torch.equal(peer.values, twin.values) and all(map(torch.equal, peer.vectors, twin.vectors))
    assert len(loads) == 1

    # What the user or a forward pass does to parameters is undone.
    with torch.no_grad():
        next(worker.model.parameters()).zero_()
    samples, seed = batches(1)[0]
    assert torch.equal(peer.gradient(samples, seed, has_values=True)[1], twin.gradient(samples, seed)[1])
    assert len(loads) == 2
    # After a change that others take part in, too.
    peer.change(gradient), twin.change(gradient)
    assert torch.equal(peer.gradient(samples, seed, has_values=True)[1], twin.gradient(samples, seed)[1])
    assert len(loads) == 4


def test_numbers_of_more_precision_are_always_brought():
    model = net(norm=False).double()
    x, y = data()
    worker = TorchWorker(model, F.cross_entropy, (x.double(), y), **SGD)
    peer = Peer(worker)
    for k, (samples, seed) in enumerate(batches(2)):
        peer.step(peer.gradient(samples, seed, has_values=k > 0)[1], there=(k > 0, k > 0))
    peer.gradient(samples, seed, has_values=True)
    assert torch.equal(flat(model).double(), torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
