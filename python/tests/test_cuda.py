import pytest
import torch
from driver import FakeRun, Peer, flat
from test_worker import OPTIMIZERS, batches, data
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from nettorrent._loop import Loop, LoopWorker
from nettorrent._worker import TorchWorker

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def net():
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(36, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Dropout(0.2), nn.Linear(40, 3)]
    return nn.Sequential(*layers)


def plain(make_optimizer, plan):
    (x, y), model = data(), net().cuda()
    optimizer = make_optimizer(model.parameters())
    for samples, seed in plan:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        F.cross_entropy(model(x[samples].cuda()), y[samples].cuda()).backward()
        optimizer.step()
    return flat(model).cpu()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_local_steps_are_those_of_a_plain_loop(name):
    plan = batches(8)
    peer = Peer(TorchWorker(net(), F.cross_entropy, TensorDataset(*data()), optimizer=OPTIMIZERS[name]))
    assert peer.worker.device.type == "cuda"
    peer.local(plan[:3])
    peer.local(plan[3:])
    assert torch.equal(peer.values, plain(OPTIMIZERS[name], plan))


@pytest.mark.parametrize("name", ["momentum", "adamw", "nadam"])
def test_gradient_and_step_are_a_plain_loop_too(name):
    plan = batches(5)
    peer = Peer(TorchWorker(net(), F.cross_entropy, list(zip(*data())), optimizer=OPTIMIZERS[name]))
    for samples, seed in plan:
        peer.step(peer.gradient(samples, seed)[1])
    torch.testing.assert_close(peer.values, plain(OPTIMIZERS[name], plan))


def test_a_fused_optimizer_goes_round():
    def fused(params):
        return torch.optim.AdamW(params, lr=0.01, fused=True)

    plan = batches(4)
    peer = Peer(TorchWorker(net().cuda(), F.cross_entropy, data(), optimizer=fused))
    peer.local(plan[:2])
    peer.local(plan[2:])
    assert torch.equal(peer.values, plain(fused, plan))


def test_a_loop_of_ones_own_with_a_scaler():
    (x, y), plan = data(), batches(4)
    theirs, scaler = net().cuda(), torch.amp.GradScaler("cuda")
    optimizer = OPTIMIZERS["momentum"](theirs.parameters())
    for samples, seed in plan:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(theirs(x[samples].cuda()), y[samples].cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    model, scaler = net().cuda(), torch.amp.GradScaler("cuda")
    worker = LoopWorker(model, None, (x, y), optimizer=OPTIMIZERS["momentum"])
    run = FakeRun(worker, lambda peer, told: peer.local(plan))
    loop = Loop(worker, run, lambda event: None)
    for a, b in loop.batches():
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(a), b)
        scaler.scale(loss).backward()
        loop.step(loss, scaler=scaler)
    torch.testing.assert_close(run.peer.values, flat(theirs).cpu())
