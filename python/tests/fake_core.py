"""A stand-in for the part in Rust: peers in one process that average the gradients of every batch."""

import types

from driver import FakeRun, Peer

from nettorrent._job import batch_in


class Core(types.ModuleType):
    """Stands in for `_core`: peers average the gradients of every batch."""

    def __init__(self):
        super().__init__("nettorrent._core")
        self.Run = self
        self.calls = {}
        self.saved = None
        self.problem = None

    def local(self, job, workers, options):
        self.calls["local"] = (job, options)
        return self._run(job, workers)

    def start(self, job, worker, options):
        self.calls["start"] = (job, options)
        return self._run(job, [worker])

    def join(self, ticket, make_worker, options):
        self.calls["join"] = (ticket, options)
        job = 'model = "Sequential"\nepochs = 2\nbatch = 12\n'
        return self._run(job, [make_worker(job)])

    def _run(self, job, workers):
        batch, n = batch_in(job), workers[0].n_samples
        peers = [Peer(worker) for worker in workers]

        def script(_, told):
            told(
                {
                    "event": "start",
                    "model": "Sequential",
                    "epochs": 2,
                    "n_train": n,
                    "n_test": workers[0].n_test,
                    "n_params": 1,
                }
            )
            for epoch in range(2):
                for k in range(0, n, batch):
                    self._round(peers, list(range(k, min(n, k + batch))), epoch)
                loss_sum, right, n_test, _ = peers[0].test(0, workers[0].n_test)
                told(
                    {
                        "event": "epoch",
                        "epoch": epoch + 1,
                        "test_loss": loss_sum / max(1, n_test),
                        "test_accuracy": right / max(1, n_test),
                    }
                )
            if self.problem:
                raise self.problem
            self.saved = peers[0].values.clone()

        run = FakeRun(workers[0], script, "a-checkpoint")
        run.read_checkpoint = lambda path: bytearray(self.saved.numpy().tobytes())
        return run

    @staticmethod
    def _round(peers, samples, epoch):
        gradients = [peer.gradient(samples[k :: len(peers)], epoch)[1] for k, peer in enumerate(peers)]
        mean = sum(gradients) / len(gradients)
        for peer in peers:
            peer.step(mean)
