"""A training loop of your own, across machines: python own_loop.py starts, python own_loop.py TICKET joins."""

import sys

import torch
from fit import spirals
from torch import nn

import nettorrent


def main() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    shared = {"data": spirals(6000, seed=1), "test": spirals(1500, seed=2), "optimizer": optimizer}

    if len(sys.argv) > 1:
        swarm = nettorrent.join(sys.argv[1], model, loss_function, **shared)
    else:
        swarm = nettorrent.start(model, loss_function, **shared, epochs=10, batch=64)
        print(f"join with: python own_loop.py {swarm.ticket}")

    for points, arms in swarm.batches():
        output = model(points)
        loss = loss_function(output, arms)
        loss.backward()
        swarm.step(loss, output, arms)

    print(f"{swarm.result.ending}: accuracy {swarm.result.accuracy:.1%}")


if __name__ == "__main__":
    main()
