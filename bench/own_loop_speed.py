"""Measures a PyTorch loop over `swarm.batches`, processes of one thread each over sockets; prints one JSON object.

    python bench/own_loop_speed.py --model mnist-cnn --peers 6 --batch 64 --epochs 3

What `ddp_speed.py` measures with DistributedDataParallel: batch 64 a process, gradients averaged after every step, SGD with momentum.
The first epoch is not timed. With `--encryption off` links are as open as gloo's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time

N_TRAIN = 16384


def train(a):
    import torch
    from torch import nn
    from torch_models import ZOO

    import nettorrent

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ZOO[a.model][0]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    data = (torch.rand(N_TRAIN, 1, 28, 28), torch.randint(0, 10, (N_TRAIN,)))
    options = {"data": data, "optimizer": optimizer, "device": "cpu", "encryption": a.encryption == "on", "progress": False}
    with tempfile.TemporaryDirectory() as place:
        options["out"] = f"{place}/run"
        if a.ticket:
            swarm = nettorrent.join(a.ticket, model, **options)
        else:
            swarm = nettorrent.start(
                model, epochs=a.epochs, batch=a.batch * a.peers, wait_for=a.peers, strategy=a.strategy, **options
            )
            print(swarm.ticket, flush=True)
        times, n_samples = [], []
        for inputs, labels in swarm.batches(overlap=a.overlap == "on"):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            swarm.step(loss)
            times.append(time.perf_counter())
            n_samples.append(len(labels))
        first = len(times) // a.epochs
        return sum(n_samples[first + 1 :]) / (times[-1] - times[first])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", default="mnist-cnn")
    p.add_argument("--peers", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--strategy", default="ring-all-reduce")
    p.add_argument("--encryption", choices=["on", "off"], default="off")
    p.add_argument("--overlap", choices=["on", "off"], default="on", help="send gradients while backward goes on (default: on)")
    p.add_argument("--ticket", help=argparse.SUPPRESS)
    p.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.ticket or a.first:
        print(json.dumps(train(a)), flush=True)
        return
    command = [sys.executable, __file__, *sys.argv[1:]]
    first = subprocess.Popen([*command, "--first"], stdout=subprocess.PIPE, text=True)
    ticket = first.stdout.readline().strip()
    others = [subprocess.Popen([*command, "--ticket", ticket], stdout=subprocess.PIPE, text=True) for _ in range(a.peers - 1)]
    rates = [json.loads(process.communicate()[0].splitlines()[-1]) for process in [first, *others]]
    print(json.dumps({"model": a.model, "peers": a.peers, "batch": a.batch, "samples_per_s": sum(rates)}))


if __name__ == "__main__":
    main()
