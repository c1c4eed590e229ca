"""Sums of a run's time do not depend on the order in which its ranks are read."""

import itertools

from stepscope.model.goodput_sums import Sums, conclude


def test_of_ranks_with_equally_many_steps_the_lowest_counts() -> None:
    """Its time divides the steps, whichever rank is read first."""
    rates = set()
    for ranks in itertools.permutations((0, 1, 2)):
        sums = Sums()
        for rank in ranks:
            sums.reach((rank, 1), 0, (rank + 1) * 10**9)
            sums.steps[rank, 1] = 6
        rates.add(conclude(sums).steps_per_second)
    assert rates == {6.0}
