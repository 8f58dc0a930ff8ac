"""A small BERT learns which of two numbers comes first in a sequence, by four peers: python huggingface.py"""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from nettorrent.huggingface import SwarmTrainer


class WhichFirst(Dataset):
    """Sequences of tokens: does the 1 come before the 2?"""

    def __init__(self, n: int, seed: int) -> None:
        noise = torch.rand(n, 16, generator=torch.Generator().manual_seed(seed))
        order = noise.argsort(1)
        self.tokens = torch.where(order < 2, order + 1, 3 + order % 5)
        self.labels = ((self.tokens == 1).int().argmax(1) < (self.tokens == 2).int().argmax(1)).long()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[k], "labels": self.labels[k]}


def main() -> None:
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=8, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, num_labels=2
    )
    args = TrainingArguments(
        "runs", num_train_epochs=4, per_device_train_batch_size=64, learning_rate=2e-3, lr_scheduler_type="cosine"
    )
    sets = {"train_dataset": WhichFirst(4000, 1), "eval_dataset": WhichFirst(1000, 2)}
    trainer = SwarmTrainer(BertForSequenceClassification(config), args, **sets, swarm={"peers": 4})
    print(trainer.train())


if __name__ == "__main__":
    main()
