import pytest
import torch
from driver import flat
from test_worker import data, net
from torch.nn import functional as F


def test_a_lightning_module_trains_as_a_plain_model(core):
    lightning = pytest.importorskip("lightning")
    import nettorrent
    from nettorrent.lightning import fit

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net(dropout=0)

        def training_step(self, batch, batch_idx):
            self.log("train_loss", 1.0)
            return {"loss": F.cross_entropy(self.net(batch[0]), batch[1])}

        def validation_step(self, batch, batch_idx):
            self.log_dict({"val_loss": F.cross_entropy(self.net(batch[0]), batch[1])})

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), lr=0.1)]

    module, plain = Module(), net(dropout=0)
    result = fit(module, data(), data(), batch=12, progress=False)
    wanted = nettorrent.fit(plain, F.cross_entropy, data(), data(), optimizer="sgd", lr=0.1, batch=12, progress=False)
    assert torch.equal(flat(module), flat(plain)) and result.loss == wanted.loss
    assert fit(Module(), data(), ticket="a-ticket", batch=12, progress=False).ending == "finished"
    assert fit(Module(), data(), wait_for=1, batch=12, progress=False).ending == "finished"


def test_the_swarm_trainer_trains_and_logs(core, tmp_path):
    transformers = pytest.importorskip("transformers")
    from nettorrent.huggingface import SwarmTrainer

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=8, num_labels=2, **small))
    tokens = torch.randint(0, 8, (48, 6))
    rows = [{"input_ids": row, "labels": row[0] % 2} for row in tokens]

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 48

        def __getitem__(self, k):
            return rows[k]

    args = transformers.TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        use_cpu=True,
        report_to=[],
    )
    trainer = SwarmTrainer(model, args, train_dataset=Rows(), eval_dataset=Rows(), swarm={"peers": 2})
    with pytest.warns(UserWarning, match="cosine"):
        output = trainer.train()
    assert "batch = 16" in core.calls["local"][0] and 'kind = "cosine"' in core.calls["local"][0]
    assert [entry["epoch"] for entry in trainer.state.log_history] == [1.0, 2.0]
    assert "eval_loss" in trainer.state.log_history[-1]
    assert output.metrics["epoch"] == 1 and trainer.evaluate()["eval_loss"] > 0
    assert torch.equal(
        torch.cat([p.detach().reshape(-1) for p in model.parameters()]),
        core.saved[: sum(p.numel() for p in model.parameters())],
    )


def test_data_sets_of_hugging_face_are_read_by_rows_and_their_labels_known(core):
    datasets = pytest.importorskip("datasets")
    from nettorrent._data import as_samples

    rows = datasets.Dataset.from_dict({"x": [[float(k), 1.0] for k in range(10)], "label": [k % 3 for k in range(10)]})
    samples = as_samples(rows.with_format("torch"))
    batch = samples.read(torch.tensor([2, 5]))
    assert batch["x"].tolist() == [[2.0, 1.0], [5.0, 1.0]] and batch["label"].tolist() == [2, 2]
    assert samples.labels() == [k % 3 for k in range(10)] == as_samples(rows).labels()
