"""A tiny language model trained by Hugging Face's Trainer, recorded by one callback."""

import tempfile
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from stepscope.integrations.transformers import StepscopeCallback


def tokens(count: int) -> list[dict[str, Any]]:
    """Random texts of eight tokens."""
    drawn = torch.randint(0, 32, (count, 8))
    return [{"input_ids": each, "labels": each} for each in drawn]


def main(steps: int = 4) -> None:
    """Train, with an evaluation in the middle and one at the end."""
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=steps, logging_steps=1, eval_strategy="steps", eval_steps=2, save_strategy="no",
            per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(
            LlamaForCausalLM(config),
            arguments,
            train_dataset=tokens(16),
            eval_dataset=tokens(4),
            callbacks=[StepscopeCallback(project="examples", name="transformers")],
        )
        trainer.train()


if __name__ == "__main__":
    main()
