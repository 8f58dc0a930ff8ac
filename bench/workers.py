"""Workers with PyTorch: processes of this machine, of one thread each, that speak over gloo by loopback."""

import os
import socket


def run(worker, a):
    """Calls `worker(rank, a)` in `a.peers` processes that are one group; what each of them returns, by rank.

    If one of them fails, the others are ended and its error is raised here.
    """
    import torch.multiprocessing as mp

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(in_group, args=(worker, a, port, results), nprocs=a.peers)
    return [result for _, result in sorted(results.get() for _ in range(a.peers))]


def in_group(rank, worker, a, port, results):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=a.peers)
    results.put((rank, worker(rank, a)))
    dist.barrier()
    dist.destroy_process_group()
