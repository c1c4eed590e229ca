"""Faults that show in the curves of a small transformer on a GPU, half way through its training, and healthy runs."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import stepscope
from benchmarks.zoo.gpu_execution import Model, batches
from benchmarks.zoo.real.journal_tapes import fill
from benchmarks.zoo.real.tape import Tape, compacted, save
from stepscope.cli.journal_diagnosis import diagnose
from stepscope.integrations.torch import instrument, uninstrument

STEPS, AT = 500, 300
RATE = 3e-4
CASES: dict[str, tuple[str, ...]] = {
    "healthy": (),
    "healthy_evaluation": (),
    "healthy_cosine": (),
    "labels_shuffled": ("level_shift", "divergence"),
    "layer_destroyed": ("level_shift", "spike"),
    "one_batch": ("stuck_batch", "too_good"),
    "frozen": ("weights_frozen", "lr_zero"),
    "rate_restarted": ("lr_schedule",),
    "no_zero_grad": ("gradients_not_cleared", "gradient_shift"),
    "leak": ("gpu_memory_creep",),
    "slow_data": ("data_stall",),
}
"""What each case may be called; a healthy one has nothing above INFO."""


def rate_at(case: str, step: int) -> float:
    """The learning rate: a cosine where the case has a schedule, which restarts at its maximum in one of them."""
    if case not in ("healthy_cosine", "rate_restarted"):
        return RATE
    if case == "rate_restarted" and step >= AT:
        step -= AT
    return RATE * (0.05 + 0.95 * (1 + float(torch.cos(torch.tensor(step / STEPS * torch.pi)))) / 2)


def train(case: str, seed: int, device: str, home: Path) -> None:
    """Train, and go wrong at a step."""
    torch.manual_seed(seed)
    run = stepscope.init(run_id=f"{case}-{seed}", home=home, otel=False, quiet=True, probe_interval=1.0)
    instrument()
    model, next_batch = Model().to(device), batches(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    kept, leaked = next_batch(), []
    for step in range(STEPS):
        wrong = step >= AT
        for group in optimizer.param_groups:
            group["lr"] = 0.0 if wrong and case == "frozen" else rate_at(case, step)
        with run.step(step):
            with run.span("train.data_load"):
                tokens = kept if wrong and case == "one_batch" else next_batch()
                if wrong and case == "slow_data":
                    time.sleep(0.06)
            if step == AT and case == "layer_destroyed":
                nn.init.normal_(model.blocks.layers[1].linear1.weight, std=1.0)
            targets = tokens[:, 1:]
            if wrong and case == "labels_shuffled":
                targets = targets[torch.randperm(len(targets), device=device)]
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            if not (wrong and case == "no_zero_grad"):
                optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            optimizer.step()
            if wrong and case == "leak":
                leaked.append(torch.empty(64 * 2**20, dtype=torch.uint8, device=device))
            run.log({"loss": loss.detach(), "grad_norm": norm.detach(), "lr": optimizer.param_groups[0]["lr"]})
            if case == "healthy_evaluation" and step % 50 == 49:
                with torch.no_grad():
                    held = [nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
                            for x in (next_batch() for _ in range(4))]  # fmt: skip
                run.log({"val/loss": torch.stack(held).mean()})
    run.finish()
    uninstrument()


def kept(case: str, seed: int, home: Path) -> Tape:
    """What was recorded, with what must be found in it."""
    tape = Tape()
    fill(tape, home, f"{case}-{seed}")
    if CASES[case]:
        tape.truth = {"kinds": CASES[case], "step": AT, "window": 30, "says": ()}
    return compacted(tape, timed=True)


def main() -> int:
    """Train every case with several seeds, and print what the diagnosis says of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--keep", type=Path, help="keep what was recorded in this file, for benchmarks.zoo.real.evaluate"
    )
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    tapes: dict[str, Tape] = {}
    named = false = faults = healthy = 0
    for case in args.cases:
        for seed in range(args.first, args.first + args.seeds):
            with tempfile.TemporaryDirectory() as home:
                train(case, seed, args.device, Path(home))
                found = diagnose(Path(home), f"{case}-{seed}")
                if args.keep is not None:
                    tapes[f"gpu.{case}_{seed}"] = kept(case, seed, Path(home))
                    save(args.keep, tapes)
            grave = [each for each in found if each["severity"] not in ("INFO", "DEBUG")]
            right = any(each["kind"] in CASES[case] for each in found) if CASES[case] else not grave
            faults, healthy = faults + bool(CASES[case]), healthy + (not CASES[case])
            named, false = named + (right and bool(CASES[case])), false + (not right and not CASES[case])
            print(
                "ok  " if right else "MISS",
                case,
                seed,
                json.dumps([f"{e['severity']} {e['kind']} @{e['step']}: {e['text']}" for e in found]),
            )
    print(f"{named} of {faults} faults named, {false} of {healthy} healthy runs with a false alarm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
