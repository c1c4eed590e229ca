"""A pole on a cart, many at once: push left or right so that the pole does not fall."""

from typing import Any

import numpy as np

Array = Any
GRAVITY, CART, POLE, HALF_LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FALLEN, AWAY = 12 * np.pi / 180, 2.4
"""A pole has fallen at this angle, and a cart has left at this distance."""
LONGEST = 500
"""An episode ends after so many pushes at the latest."""


class Carts:
    """Carts side by side, each begun anew when its pole fell or its time was up."""

    def __init__(self, count: int, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self.state = self._fresh(count)
        self._age = np.zeros(count, int)
        self.lengths: list[int] = []
        """How long the episodes that ended took, since someone emptied it."""

    def _fresh(self, count: int) -> Array:
        return self._draw.uniform(-0.05, 0.05, (count, 4))

    def act(self, pushes: Array) -> tuple[Array, Array]:
        """Push each cart, 0 left and 1 right; the rewards, and which episodes ended."""
        place, speed, angle, turn = self.state.T
        force = np.where(pushes == 1, FORCE, -FORCE)
        mass = CART + POLE
        pull = (force + POLE * HALF_LENGTH * turn**2 * np.sin(angle)) / mass
        down = GRAVITY * np.sin(angle) - np.cos(angle) * pull
        spin = down / (HALF_LENGTH * (4 / 3 - POLE * np.cos(angle) ** 2 / mass))
        push = pull - POLE * HALF_LENGTH * spin * np.cos(angle) / mass
        moved = [place + TICK * speed, speed + TICK * push, angle + TICK * turn, turn + TICK * spin]
        self.state = np.stack(moved, 1)
        self._age += 1
        fell = (np.abs(self.state[:, 0]) > AWAY) | (np.abs(self.state[:, 2]) > FALLEN)
        ended = fell | (self._age >= LONGEST)
        self.lengths += self._age[ended].tolist()
        self.state[ended] = self._fresh(int(ended.sum()))
        self._age[ended] = 0
        return np.where(fell, 0.0, 1.0), ended
