"""Steps that are taken before it is known whether they count are those that wait for it."""

import pytest
import torch
from driver import Peer
from test_worker import OPTIMIZERS, batches, data, net
from torch.nn import functional as F

from nettorrent._undo import Undo
from nettorrent._worker import TorchWorker


def peers(optimizer, monkeypatch, free=1 << 30):
    """Two that train samples of which one is not a number: the first waits for each answer, the second does not."""
    x, y = data()
    x = x.clone()
    x[3] = torch.nan
    waits, goes_on = (Peer(TorchWorker(net(), F.cross_entropy, (x, y), optimizer=optimizer)) for _ in range(2))
    # As on a GPU.
    monkeypatch.setattr(Undo, "_free", lambda _: free)
    goes_on.worker._undo._is_possible = True
    return waits, goes_on


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_does_not_count_is_taken_back_bit_for_bit(name, monkeypatch):
    usual = [([k for k in samples if k != 3], seed) for samples, seed in batches(7)]
    plan = [([3, 4], 1), *usual[:3], ([3, 5, 6], 2), *usual[3:]]
    waits, goes_on = peers(OPTIMIZERS[name], monkeypatch)
    assert goes_on.worker._undo.remember() and not waits.worker._undo.remember()
    scores = [peer.local(plan) for peer in (waits, goes_on)]
    assert [score is None for score in scores[0]] == [3 in samples for samples, _ in plan]
    assert scores[0] == scores[1]
    assert torch.equal(waits.values, goes_on.values)
    assert all(torch.equal(a, b) for a, b in zip(waits.vectors, goes_on.vectors, strict=True))
    assert waits.n_steps == goes_on.n_steps == len(plan) - 2


def test_without_room_for_copies_each_step_waits(monkeypatch):
    waits, goes_on = peers(OPTIMIZERS["adamw"], monkeypatch, free=100)
    assert waits.local([([0, 1], 1)]) == goes_on.local([([0, 1], 1)])
    assert torch.equal(waits.values, goes_on.values)
    assert not goes_on.worker._undo._is_possible


def test_who_listens_to_steps_hears_of_none_that_is_taken_back(monkeypatch):
    _, goes_on = peers(OPTIMIZERS["adamw"], monkeypatch)
    heard = []
    goes_on.worker.optimizer.register_step_post_hook(lambda *_: heard.append(1))
    assert goes_on.local([([0, 3], 1), ([1, 2], 2)])[0] is None
    assert len(heard) == 1
