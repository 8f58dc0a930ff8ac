"""One worker of PyTorch DistributedDataParallel over gloo that trains a language model; the first prints the seconds of its steps.

    python bench/ddp_steps.py --rank 0 --peers 4 --master 10.77.0.1:29500 --device eth0 --model gpt:6x384x6
"""

import argparse
import json
import time

import workers


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    workers.add_options(p)
    p.add_argument("--model", default="gpt:6x384x6")
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--tokens", type=int, default=65, help="in the vocabulary")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--steps", type=int, default=12)
    a = p.parse_args()
    import torch
    import torch.distributed as dist
    from torch_models import language_model

    workers.join_as_told(a)
    torch.manual_seed(1)
    net = torch.nn.parallel.DistributedDataParallel(language_model(a.model, a.length, a.tokens))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    seconds = []
    for _ in range(a.steps):
        began = time.perf_counter()
        tokens = torch.randint(a.tokens, (a.batch, a.length + 1))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    dist.barrier()
    dist.destroy_process_group()
    if a.rank == 0:
        # The first ones also agree on buckets.
        print(json.dumps({"seconds": seconds[2:]}))


if __name__ == "__main__":
    main()
