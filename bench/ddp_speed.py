"""Measures PyTorch DistributedDataParallel over gloo, workers of one thread each; prints one JSON object.

    python bench/ddp_speed.py --model mlp --peers 6 --batch 64 --seconds 8

A step is zero_grad, forward, cross-entropy, backward (which averages the gradients) and SGD with momentum. The models are
those of `torch_models.py`; inputs are drawn beforehand.
"""

import argparse
import json
import time

import workers


def worker(rank, a):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch_models import ZOO

    torch.manual_seed(0)
    net = ZOO[a.model][0]()
    if a.peers > 1:
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
    inputs = torch.rand(8 * a.batch, 1, 28, 28)
    labels = torch.randint(0, 10, (8 * a.batch,))

    def step(i):
        part = slice(i % 8 * a.batch, (i % 8 + 1) * a.batch)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(inputs[part]), labels[part]).backward()
        optimizer.step()

    for i in range(10):
        step(i)
    if a.peers > 1:
        dist.barrier()
    n_steps, began, stop = 0, time.perf_counter(), torch.zeros(1)
    while stop[0] == 0:
        for i in range(10):
            step(i)
        n_steps += 10
        if rank == 0:
            stop[0] = float(time.perf_counter() - began > a.seconds)
        if a.peers > 1:
            dist.broadcast(stop, 0)
    return n_steps * a.batch, time.perf_counter() - began


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", default="mlp")
    p.add_argument("--peers", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--seconds", type=float, default=8)
    a = p.parse_args()
    counts = workers.run(worker, a)
    rate = sum(n for n, _ in counts) / max(seconds for _, seconds in counts)
    print(json.dumps({"model": a.model, "peers": a.peers, "samples_per_s": rate}))


if __name__ == "__main__":
    main()
