import gc
import os
import signal

import pytest
import torch
from driver import FakeRun, flat, view
from test_worker import batches, data, net, plain
from torch.nn import functional as F

from nettorrent._loop import Left, Loop, LoopWorker
from nettorrent._worker import TorchWorker

SGD = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)}


def loop_of(script, model=None, events=None, loss=None, **options):
    model = model or net()
    worker = LoopWorker(model, loss, data(), **{**SGD, **options})
    run = FakeRun(worker, script)
    return Loop(worker, run, (events if events is not None else []).append), run, model


def by_gradients(plan):
    """Rust's side where gradients are exchanged."""

    def script(peer, told):
        for samples, seed in plan:
            score, gradient = peer.gradient(samples, seed)
            told({"event": "progress", "loss": score[0] / score[2]})
            peer.step(gradient)

    return script


def by_phases(plan, size):
    """Rust's side where peers train alone for a while."""

    def script(peer, told):
        for k in range(0, len(plan), size):
            peer.local(plan[k : k + size])

    return script


def train(loop, model, **options):
    for x, y in loop.batches():
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        loop.step(loss, output, y, **options)


@pytest.mark.parametrize("script", [by_gradients(batches(9)), by_phases(batches(9), 9), by_phases(batches(9), 2)])
def test_a_loop_of_ones_own_is_a_plain_loop(script):
    x, y = data()
    theirs = net()
    plain(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9), batches(9), x, y)
    loop, run, model = loop_of(script)
    train(loop, model)
    torch.testing.assert_close(run.peer.values, flat(theirs), rtol=1e-6, atol=1e-7)
    n = run.peer.n_params
    assert torch.equal(run.peer.values[:n], flat(theirs)[:n])
    assert loop.result["ending"] == "finished" and loop.result["step"] == 9


def test_events_come_in_the_users_thread():
    events = []
    loop, _, model = loop_of(by_gradients(batches(3)), events=events)
    train(loop, model)
    assert [event["event"] for event in events] == ["progress"] * 3


def test_schedulers_of_the_user_set_the_rate_and_ours_is_a_factor():
    x, y = data()
    theirs, plan = net(), batches(6)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for samples, seed in plan:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        F.cross_entropy(theirs(x[samples]), y[samples]).backward()
        optimizer.step()
        schedule.step()

    def script(peer, told):
        peer.local(plan[:3], lr=0.5)
        for samples, seed in plan[3:]:
            peer.step(peer.gradient(samples, seed)[1], lr=0.5)

    model = net()
    ours = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(ours, 2, 0.5)
    loop, run, model = loop_of(script, model, optimizer=ours)
    for a, b in loop.batches():
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        loop.step(loss)
        schedule.step()
    n = run.peer.n_params
    assert torch.equal(run.peer.values[:n], flat(theirs)[:n])


def test_micro_batches_are_averaged():
    x, y = data()
    plan = batches(4, size=8)
    theirs = net(norm=False, dropout=0)
    plain(theirs, SGD["optimizer"](theirs.parameters()), plan, x, y)
    for script in (by_gradients(plan), by_phases(plan, 4)):
        loop, run, model = loop_of(script, net(norm=False, dropout=0), accumulate=3)
        sizes = []
        for a, b in loop.batches():
            sizes.append(len(a))
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            loop.step(loss)
        assert sizes == [3, 3, 2] * 4
        torch.testing.assert_close(run.peer.values, flat(theirs))


def test_a_scaled_gradient_is_unscaled_and_one_that_overflows_left_out():
    x, y = data()
    theirs, plan = net(norm=False), batches(4)
    plain(theirs, SGD["optimizer"](theirs.parameters()), plan, x, y)
    for script in (by_gradients(plan), by_phases(plan, 2)):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        loop, run, model = loop_of(script, net(norm=False))
        for a, b in loop.batches():
            loss = F.cross_entropy(model(a), b)
            scaler.scale(loss).backward()
            loop.step(loss, scaler=scaler)
        torch.testing.assert_close(run.peer.values, flat(theirs))

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loop, run, model = loop_of(by_phases(plan[:1], 1), net(norm=False))
    for a, b in loop.batches():
        loss = F.cross_entropy(model(a), b)
        scaler.scale(loss * 1e37).backward()
        scaler.unscale_(loop._worker.optimizer)
        loop.step(loss, scaler=scaler)
    assert run.peer.n_steps == 0 and torch.equal(run.peer.values, flat(net(norm=False))) and scaler.get_scale() == 512


def test_scores_and_tests():
    x, y = data()
    seen = {}

    def script(peer, told):
        seen["score"] = peer.score(list(range(40)))
        seen["test"] = peer.test(0, peer.worker.n_test)
        peer.step(peer.gradient([0, 1], 1)[1])

    def evaluate():
        assert not model.training and not torch.is_grad_enabled()
        return 5.0, 3, 7

    model = net()
    loop, run, _ = loop_of(script, model, evaluate=evaluate)
    train(loop, model)
    assert seen["test"] == (5.0, 3, 7, []) and seen["score"][2] == 40 and run.peer.n_steps == 1

    loop, _, model = loop_of(script, loss=F.cross_entropy, test=(x[:10], y[:10]))
    train(loop, model)
    with torch.no_grad():
        output = net().eval()(x)
    assert seen["test"][0] == pytest.approx(10 * F.cross_entropy(output[:10], y[:10]).item())
    assert seen["score"][0] == pytest.approx(40 * F.cross_entropy(output[:40], y[:40]).item())


@pytest.mark.parametrize("after_step", [False, True])
def test_leaving_the_loop_leaves_the_swarm(after_step):
    seen = []

    def script(peer, told):
        try:
            for samples, seed in batches(100):
                peer.step(peer.gradient(samples, seed)[1])
        except Left as left:
            seen.append(left)

    loop, run, model = loop_of(script)
    for k, (x, y) in enumerate(loop.batches()):
        if k == 2 and not after_step:
            break
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        loop.step(loss)
        if k == 2:
            break
    gc.collect()
    assert run.left.is_set() and len(seen) == 1 and loop.result["ending"] == "left"


def test_a_local_phase_is_ended_when_the_loop_is_left():
    def script(peer, told):
        worker = peer.worker
        worker.local_begin(view(peer.values), peer._vectors(), 0)
        try:
            worker.local_step(view(torch.tensor([0, 1])), 1, 1.0, 1e9)
            worker.local_step(view(torch.tensor([2, 3])), 1, 1.0, 1e9)
        except Left:
            peer.n_steps = worker.local_end(view(peer.values), peer._vectors())

    loop, run, model = loop_of(script)
    for x, y in loop.batches():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        loop.step(loss)
        break
    assert run.peer.n_steps == 1 and loop.result["ending"] == "left"


def test_errors_in_the_loop_body_leave_and_pass():
    loop, run, model = loop_of(by_gradients(batches(100)))
    with pytest.raises(ZeroDivisionError):
        for _ in loop.batches():
            1 / 0
    assert run.left.is_set()


def test_errors_of_the_run_end_the_loop():
    def script(peer, told):
        peer.gradient([0, 1], 1)
        raise ConnectionError("the others are gone")

    loop, _, model = loop_of(script)
    with pytest.raises(ConnectionError, match="gone"):
        train(loop, model)


def test_errors_in_the_users_test_pass():
    def evaluate():
        raise KeyError("mine")

    def script(peer, told):
        peer.gradient([0, 1], 1)
        peer.test(0, 1)

    loop, run, model = loop_of(script, evaluate=evaluate)
    with pytest.raises(KeyError, match="mine"):
        train(loop, model)
    assert run.left.is_set()


def test_a_batch_without_a_step_and_a_step_without_a_batch_are_told():
    loop, run, model = loop_of(by_gradients(batches(5)))
    with pytest.raises(RuntimeError, match="was not called"):
        for _ in loop.batches():
            pass
    assert run.left.is_set()
    with pytest.raises(RuntimeError, match="belongs into"):
        loop.step(torch.tensor(1.0))


def test_an_optimizer_step_of_the_users_own_is_told():
    loop, run, model = loop_of(by_gradients(batches(5)))
    optimizer = loop._worker.optimizer
    with pytest.raises(RuntimeError, match="take optimizer.step"):
        for x, y in loop.batches():
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    optimizer.step()


def test_without_a_loop_it_is_a_plain_worker():
    worker = LoopWorker(net(), F.cross_entropy, data(), **SGD)
    run = FakeRun(worker, by_gradients(batches(3)))
    worker.compute_here()
    assert run.run(None)["step"] == 3


@pytest.mark.parametrize("at", ["gradient", "step"])
def test_ctrl_c_within_a_call_waits_until_it_is_answered(monkeypatch, at):
    """Half a step must not be left behind, and Rust is not told of a failure."""
    function = getattr(TorchWorker, "_hand_over_gradient" if at == "gradient" else "step")
    calls = []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return function(*args)

    monkeypatch.setattr(TorchWorker, "_hand_over_gradient" if at == "gradient" else "step", interrupted)
    loop, run, model = loop_of(by_gradients(batches(100)))
    with pytest.raises(KeyboardInterrupt):
        train(loop, model)
    gc.collect()
    assert run.left.is_set() and loop.result["ending"] == "left" and run.peer.n_steps in (2, 3)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
