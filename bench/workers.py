"""Workers with PyTorch, of one thread each, that speak over gloo: processes of this machine by loopback, or one of several hosts."""

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
    import torch.distributed as dist

    join("127.0.0.1", port, "lo", rank, a.peers)
    results.put((rank, worker(rank, a)))
    dist.barrier()
    dist.destroy_process_group()


def join(address, port, device, rank, n_peers):
    """Makes this process one of a group, with one thread."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port), GLOO_SOCKET_IFNAME=device)
    dist.init_process_group("gloo", rank=rank, world_size=n_peers)


def add_options(p):
    """What a worker on a host of its own has to be told."""
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--peers", type=int, required=True)
    p.add_argument("--master", required=True, metavar="ADDRESS:PORT")
    p.add_argument("--device", required=True, help="the network device to speak over")


def join_as_told(a):
    """Makes this process the worker that its arguments say."""
    address, port = a.master.rsplit(":", 1)
    join(address, port, a.device, a.rank, a.peers)
