"""One worker of PyTorch DistributedDataParallel over gloo that trains the MNIST CNN; the first prints lines of JSON.

    python bench/ddp_accuracy.py --rank 0 --peers 4 --master 10.77.0.1:29500 --device eth0 --data FOLDER --test FOLDER

The learning rate grows to that of the group over the first epochs, as `swarm.scale = "linear"` has it. Nothing is tested
until all is trained: then the first worker tests what it kept after each epoch, until the wanted accuracy is there.
"""

import argparse
import json
import os
import time

import mnist_files
import workers


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    workers.add_options(p)
    p.add_argument("--data", required=True, metavar="FOLDER", help="what to train on")
    p.add_argument("--test", required=True, metavar="FOLDER", help="what to test with")
    p.add_argument("--model", default="mnist-cnn", metavar="NAME", help="mnist-cnn or mlp:WIDTH,WIDTH,...")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--momentum", type=float, default=0.5)
    p.add_argument("--warmup", type=float, default=1.0)
    p.add_argument("--target", type=float, default=0.97)
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


def tensors(folder, part):
    import torch

    pictures, labels = mnist_files.read(folder, part)
    pictures = torch.frombuffer(bytearray(pictures), dtype=torch.uint8).view(-1, 1, 28, 28)
    labels = torch.frombuffer(bytearray(labels), dtype=torch.uint8).long()
    return (pictures.float() / 255 - mnist_files.MEAN) / mnist_files.DEVIATION, labels


def train(net, a):
    """Trains; the parameters after each epoch, which the first worker keeps."""
    import torch
    import torch.distributed as dist
    from torch import nn

    pictures, labels = tensors(a.data, "train")
    optimizer = torch.optim.SGD(net.parameters(), lr=a.lr, momentum=a.momentum)
    kept, n = [], len(labels)
    dist.barrier()
    if a.rank == 0:
        print(json.dumps({"event": "begin"}), flush=True)
    began = time.perf_counter()
    for epoch in range(a.epochs):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(a.seed * 1000 + epoch))
        batches = order[a.rank::a.peers].split(a.batch)
        for i, batch in enumerate(batches):
            done = epoch + i / len(batches)
            share = min(done / a.warmup, 1) if a.warmup > 0 else 1
            optimizer.param_groups[0]["lr"] = a.lr * (1 + (a.peers - 1) * share)
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(net(pictures[batch]), labels[batch]).backward()
            optimizer.step()
        if a.rank == 0:
            kept.append({name: value.clone() for name, value in net.module.state_dict().items()})
            print(json.dumps({"event": "epoch", "epoch": epoch + 1, "seconds": time.perf_counter() - began}), flush=True)
    return kept


def test(net, kept, a):
    import torch

    torch.set_num_threads(os.cpu_count())
    pictures, labels = tensors(a.test, "t10k")
    net.eval()
    for epoch, values in enumerate(kept, 1):
        net.load_state_dict(values)
        with torch.no_grad():
            right = sum((net(x).argmax(1) == y).sum().item() for x, y in zip(pictures.split(1000), labels.split(1000)))
        print(json.dumps({"event": "test", "epoch": epoch, "test_accuracy": right / len(labels)}), flush=True)
        if right / len(labels) >= a.target:
            return


def main():
    a = arguments()
    import torch
    import torch.distributed as dist
    from torch_models import mlp, mnist_cnn

    workers.join_as_told(a)
    torch.manual_seed(a.seed)
    name, _, widths = a.model.partition(":")
    net = mlp([784, *map(int, widths.split(",")), 10]) if name == "mlp" else mnist_cnn()
    # Dropout differs between workers.
    torch.manual_seed(a.seed + 1 + a.rank)
    kept = train(torch.nn.parallel.DistributedDataParallel(net), a)
    dist.barrier()
    dist.destroy_process_group()
    if a.rank == 0:
        test(net, kept, a)


if __name__ == "__main__":
    main()
