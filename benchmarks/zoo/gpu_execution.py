"""Faults of execution on a GPU: a small transformer that stops training half way, and what the diagnosis says of it."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import stepscope
from stepscope.cli.journal_diagnosis import diagnose
from stepscope.integrations.torch import instrument, uninstrument

STEPS, AT = 400, 200
CASES = {
    "healthy": (),
    "frozen": ("weights_frozen",),
    "not_cleared": ("gradients_not_cleared",),
    "one_batch": ("stuck_batch",),
    "outside_optimizer": ("unused_parameters",),
    "leak": ("gpu_memory_creep",),
}
"""What each case may be called."""


class Model(nn.Module):
    """A character model."""

    def __init__(self, width: int = 256, layers: int = 4, vocabulary: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        out: torch.Tensor = self.head(self.blocks(self.embed(tokens), mask=mask, is_causal=True))
        return out


def batches(device: str) -> Callable[[], torch.Tensor]:
    """Return a source of texts in which each character follows from the two before it."""
    generator = torch.Generator(device=device).manual_seed(5)

    def batch() -> torch.Tensor:
        begin = torch.randint(0, 96, (32, 1), generator=generator, device=device)
        stride = torch.randint(1, 7, (32, 1), generator=generator, device=device)
        return (begin + stride * torch.arange(65, device=device)) % 96

    return batch


def train(case: str, device: str, home: Path) -> None:
    """Train, and go wrong at a step."""
    torch.manual_seed(1)
    model, batch, kept = Model().to(device), batches(device), []
    own = model.blocks.parameters() if case == "outside_optimizer" else model.parameters()
    optimizer = torch.optim.AdamW(own, lr=3e-4)
    text = batch()
    with stepscope.init(project="gpu", run_id=case, home=home, quiet=True) as run:
        instrument()
        for step in range(STEPS):
            faulty = step >= AT
            with run.step(step):
                if not (faulty and case == "one_batch"):
                    text = batch()
                logits = model(text[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
                if not (faulty and case == "not_cleared"):
                    optimizer.zero_grad()
                loss.backward()
                if faulty and case == "frozen":
                    optimizer.zero_grad()
                optimizer.step()
                if case == "leak":
                    kept.append(torch.empty(16 << 20, dtype=torch.uint8, device=device))
                run.log({"loss": loss, "lr": 3e-4})
        uninstrument()


def main() -> int:
    """Run the cases, print the findings, and return 1 if one is not named or a healthy run is accused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in args.cases or CASES:
            train(case, args.device, Path(folder))
            found: list[dict[str, Any]] = diagnose(Path(folder), case)
            named = all(any(each["kind"] == kind for each in found) for kind in CASES[case])
            right = named if CASES[case] else not found
            wrong += not right
            print(f"{case}: {'right' if right else 'WRONG'}")
            for each in found:
                print(f"    {each['severity']} {each['kind']}: {each['text']}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
