"""Checkpoints: weights, optimizer and step in one file, replaced atomically."""

import os
from pathlib import Path

import numpy as np

from stepscope.demo.model import Adam, Network


def save(path: Path, network: Network, adam: Adam, step: int) -> int:
    """Save what a training needs to go on behind a step; the size of the file."""
    part = path.with_suffix(".part")
    with open(part, "wb") as file:
        np.savez(file, weights=network.vector, first=adam.first, second=adam.second, taken=adam.taken, step=step)
    os.replace(part, path)
    return path.stat().st_size


def load(path: Path, network: Network, adam: Adam) -> int:
    """Put a checkpoint into a network and its optimizer; the step to go on with."""
    with np.load(path) as saved:
        network.vector[...] = saved["weights"]
        adam.first[...] = saved["first"]
        adam.second[...] = saved["second"]
        adam.taken = int(saved["taken"])
        return int(saved["step"]) + 1
