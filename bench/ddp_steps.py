"""One worker of PyTorch DistributedDataParallel over gloo that trains a language model; the first prints the seconds of its steps.

    python bench/ddp_steps.py --rank 0 --peers 4 --master 10.77.0.1:29500 --device eth0 --model gpt:6x384x6
"""

import argparse
import json
import os
import time


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--peers", type=int, required=True)
    p.add_argument("--master", required=True, metavar="ADDRESS:PORT")
    p.add_argument("--device", required=True, help="the network device to speak over")
    p.add_argument("--model", default="gpt:6x384x6")
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--tokens", type=int, default=65, help="in the vocabulary")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--steps", type=int, default=12)
    a = p.parse_args()
    import torch
    import torch.distributed as dist
    from torch_models import language_model

    torch.set_num_threads(1)
    address, port = a.master.rsplit(":", 1)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, GLOO_SOCKET_IFNAME=a.device)
    dist.init_process_group("gloo", rank=a.rank, world_size=a.peers)
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
