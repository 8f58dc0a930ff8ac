import pytest
import torch
from torch import nn

from nettorrent._optimizer import OptimizerState, make_optimizer, replica


def params():
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(()))]


def train(optimizer, its, n):
    for k in range(n):
        for p in its:
            p.grad = torch.full_like(p, 0.1 * (k + 1))
        optimizer.step()


def packed(state, n_steps):
    n = sum(p.numel() for p in state.params)
    vectors = [torch.full((n,), torch.nan) for _ in range(state.n_vectors)]
    state.pack(vectors, n_steps)
    return vectors


@pytest.mark.parametrize(
    ("name", "n_vectors"),
    [
        ("SGD", 0),
        ("Adam", 2),
        ("AdamW", 2),
        ("RAdam", 2),
        ("Adagrad", 1),
        ("Rprop", 2),
        ("NAdam", 3),
        ("Adafactor", 2),
        ("ASGD", 2),
    ],
)
def test_how_many_vectors_there_are(name, n_vectors):
    its = params()
    assert OptimizerState(getattr(torch.optim, name)(its), its).n_vectors == n_vectors


@pytest.mark.parametrize("name", ["Adam", "NAdam", "Adagrad", "Adafactor", "ASGD", "Rprop", "Adamax", "Adadelta"])
def test_state_goes_into_an_optimizer_that_has_made_no_step(name):
    ours, theirs = params(), params()
    one, other = getattr(torch.optim, name)(ours), getattr(torch.optim, name)(theirs)
    state, restored = OptimizerState(one, ours), OptimizerState(other, theirs)
    train(one, ours, 5)
    with torch.no_grad():
        for mine, its in zip(ours, theirs):
            its.copy_(mine)
    restored.restore(packed(state, 5), 5)
    train(one, ours, 3)
    train(other, theirs, 3)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad", "NAdam"])
def test_zeros_and_no_steps_are_a_fresh_optimizer_even_after_steps(name):
    kind = getattr(torch.optim, name)
    options = {"momentum": 0.9} if name == "SGD" else {}
    used, fresh = params(), params()
    one, other = kind(used, **options), kind(fresh, **options)
    state = OptimizerState(one, used)
    train(one, used, 4)
    again = OptimizerState(one, used)
    with torch.no_grad():
        for mine, its in zip(used, fresh):
            its.copy_(mine)
    again.restore([torch.zeros(18) for _ in range(state.n_vectors)], 0)
    train(one, used, 2)
    train(other, fresh, 2)
    assert all(torch.equal(a, b) for a, b in zip(used, fresh))


def test_a_fresh_state_packs_to_zeros():
    its = params()
    assert not any(vector.any() for vector in packed(OptimizerState(torch.optim.NAdam(its), its), 0))


def test_groups_without_momentum_have_none_after_a_round_trip():
    its = params()
    groups = [{"params": its[:1], "momentum": 0.9}, {"params": its[1:], "momentum": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    state = OptimizerState(optimizer, its)
    train(optimizer, its, 2)
    vectors = packed(state, 2)
    state.restore(vectors, 2)
    assert state.n_vectors == 1 and vectors[0][:12].all() and not vectors[0][12:].any()
    assert optimizer.state[its[1]].get("momentum_buffer") is None


def test_numbers_that_an_optimizer_keeps_in_its_groups_travel():
    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                group["k"] = group.get("k", 0) + 1
            return super().step(closure)

    its = params()
    one, other = Counting(its, lr=0.1), Counting(its, lr=0.1)
    state = OptimizerState(one, its)
    train(one, its, 3)
    restored = OptimizerState(other, its)
    restored.restore(packed(state, 3), 3)
    assert other.param_groups[0]["k"] == 3


def test_what_cannot_be_packed_is_refused():
    its = params()
    with pytest.raises(TypeError, match="LBFGS"):
        OptimizerState(torch.optim.LBFGS(its), its)
    with pytest.raises(TypeError, match="SparseAdam"):
        OptimizerState(torch.optim.SparseAdam(its), its)


def test_optimizers_by_name_and_function():
    model = nn.Linear(2, 2)
    assert isinstance(make_optimizer("adamw", model, 0.5), torch.optim.AdamW)
    assert make_optimizer("SGD", model, 0.5).param_groups[0]["lr"] == 0.5
    assert make_optimizer(lambda p: torch.optim.SGD(p, lr=0.25), model).param_groups[0]["lr"] == 0.25
    with pytest.raises(ValueError, match="there are .*adamw"):
        make_optimizer("adamww", model)
    with pytest.raises(ValueError, match="twice"):
        make_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, 0.1)


def test_a_rate_as_a_tensor_is_scaled_and_given_back():
    its = params()
    rate = torch.tensor(0.5)
    optimizer = torch.optim.Adam(its, lr=rate)
    with OptimizerState(optimizer, its).scaled_lr(0.1):
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)
    assert optimizer.param_groups[0]["lr"] is rate


def test_a_scheduler_made_before_does_not_step_the_original_in_the_trial():
    its = params()
    optimizer = torch.optim.SGD(its, lr=0.1, weight_decay=0.5, momentum=0.9)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    before = [p.detach().clone() for p in its]
    OptimizerState(optimizer, its)
    assert all(torch.equal(a, b) for a, b in zip(before, its)) and not optimizer.state
    twin_model, twin = replica(nn.Linear(2, 2), "sgd")
    assert twin == "sgd" and isinstance(twin_model, nn.Linear)
