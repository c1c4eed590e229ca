"""The demo's parts are real: gradients are right, averages are averages, checkpoints bring everything back."""

import socket
import threading
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the demo needs numpy")

from stepscope.demo import demo_plan  # noqa: E402
from stepscope.demo.exchange import Exchange, PeerLost  # noqa: E402
from stepscope.demo.network import Adam, Network, load, loss_of, save, spirals  # noqa: E402
from stepscope.demo.ppo import (  # noqa: E402
    LONGEST,
    Carts,
    Learner,
)


def test_the_gradient_is_that_of_the_loss() -> None:
    """The gradient equals finite differences of the loss."""
    network = Network((2, 8, 1), seed=1)
    points, labels = spirals(32, seed=2)
    network.backward(loss_of(network.forward(points), labels)[1])
    for at in range(0, len(network.vector), 5):
        moved = []
        for way in (1e-6, -2e-6):
            network.vector[at] += way
            moved.append(loss_of(network.forward(points), labels)[0])
        network.vector[at] += 1e-6
        assert network.gradient[at] == pytest.approx((moved[0] - moved[1]) / 2e-6, abs=1e-6)


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    """Weights, moments and the step to go on with."""
    network, adam = Network((2, 8, 1), seed=1), Adam(33)
    adam.update(network.vector, np.ones(33), 0.1)
    save(tmp_path / "model.npz", network, adam, 41)
    other, moments = Network((2, 8, 1), seed=9), Adam(33)
    assert load(tmp_path / "model.npz", other, moments) == 42
    assert np.array_equal(other.vector, network.vector)
    assert np.array_equal(moments.second, adam.second)
    assert moments.taken == 1


def exchanges() -> tuple[list[Exchange], list[tuple[socket.socket, socket.socket]]]:
    """Three ranks in this process, and their sockets."""
    pairs = [socket.socketpair() for _ in range(2)]
    peers = [[here for here, _ in pairs], *([there] for _, there in pairs)]
    return [Exchange(rank, peers[rank]) for rank in range(3)], pairs


def test_all_ranks_get_the_mean_of_all_gradients() -> None:
    """All ranks get the same mean in every round, in any schedule."""
    ranks, _ = exchanges()
    got: dict[int, list[float]] = {0: [], 1: [], 2: []}

    def work(rank: int) -> None:
        for turn in range(200):
            got[rank].append(float(ranks[rank].average(np.full(5, turn * 10.0 + rank))[0]))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert got[0] == got[1] == got[2] == [turn * 10.0 + 1 for turn in range(200)]


def test_a_rank_that_is_gone_is_noticed() -> None:
    """The error names the missing rank."""
    ranks, pairs = exchanges()
    pairs[1][1].close()
    pairs[0][1].sendall(np.zeros(5).tobytes())
    with pytest.raises(PeerLost, match="rank 2 has exited"):
        ranks[0].average(np.zeros(5))


def test_ppo_learns_to_hold_the_pole() -> None:
    """Episodes become several times as long within 25 iterations."""
    learner = Learner(demo_plan.GamePlan().config)
    means = []
    for _ in range(25):
        learner.train(learner.estimate(learner.sample()), 5e-4)
        means.append(np.mean(learner.carts.lengths or [LONGEST]))
        learner.carts.lengths = []
    assert np.mean(means[-5:]) > 4 * means[0]


def test_a_pole_that_nobody_holds_falls() -> None:
    """Always pushing left ends episodes early, and new ones begin upright."""
    carts = Carts(8, seed=1)
    for _ in range(30):
        carts.act(np.zeros(8, int))
    assert carts.lengths
    assert max(carts.lengths) < 20
    assert np.abs(carts.state).max() < 3
