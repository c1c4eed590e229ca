"""The guard and its tokens, without a hub."""

from pathlib import Path

import pytest

from stepscope.cli.main import main
from stepscope.hub.refusals import Refusal
from stepscope.hub.security.guard import Access, Guard, RequestHead, is_loopback, known_hosts
from stepscope.hub.security.tokens import RateLimits, Tokens
from stepscope.model.errors import ConfigError

LOCAL = {"host": "localhost:4318"}
HEALTH = RequestHead("GET", "/api/health", LOCAL)


class Clock:
    """A clock set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock set by hand."""
    return Clock()


def guard(tokens: Tokens, *, required: bool = False) -> Guard:
    """A guard of a hub on loopback."""
    return Guard(tokens, RateLimits(1000), known_hosts("127.0.0.1"), required=required)


def test_last_token_opens_nothing(tmp_path: Path, clock: Clock) -> None:
    """When the last token is taken back, or its file vanishes, the hub does not open."""
    file = tmp_path / "tokens.json"
    tokens = Tokens(file, clock)
    watching = guard(Tokens(file, clock))
    assert isinstance(watching.check(HEALTH, "read", ""), Access)
    token, _ = tokens.create(["read"])
    clock.now += 2
    assert isinstance(watching.check(HEALTH, "read", ""), Refusal)
    assert tokens.revoke(token.id)
    clock.now += 2
    assert isinstance(watching.check(HEALTH, "read", ""), Refusal)
    file.unlink()
    clock.now += 2
    assert isinstance(watching.check(HEALTH, "read", ""), Refusal)


def test_required(tmp_path: Path) -> None:
    """A hub on a non-loopback address requires a token, even if none exists."""
    watching = guard(Tokens(tmp_path / "tokens.json"), required=True)
    assert isinstance(watching.check(RequestHead("POST", "/v1/logs", LOCAL), "ingest", ""), Refusal)
    assert isinstance(watching.admit("", "ingest"), Refusal)


def test_damaged_tokens(tmp_path: Path, clock: Clock) -> None:
    """A file that cannot be read keeps a hub from starting, and a running one to what it knows."""
    file = tmp_path / "tokens.json"
    tokens = Tokens(file, clock)
    _, text = tokens.create(["read"])
    assert tokens.find(text) is not None
    file.write_text("{")
    clock.now += 2
    assert tokens.find(text) is not None
    with pytest.raises(ConfigError, match="fix or remove"):
        Tokens(file)


@pytest.mark.parametrize("text", ["", "sst", "sst__", "sst_x_y", "_", "sst_" + "0" * 5000, "sst_\ud800_x"])
def test_strange_tokens(tmp_path: Path, text: str) -> None:
    """No text that is not a token passes for one."""
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.create(["admin"])
    assert tokens.find(text) is None


def test_rates(clock: Clock) -> None:
    """A token may be used in bursts, and then at its rate."""
    rates = RateLimits(10, clock)
    assert [rates.take("a") for _ in range(20)] == [0.0] * 20
    assert rates.take("a") == pytest.approx(0.1)
    assert rates.take("b") == 0.0
    clock.now += 0.1
    assert (rates.take("a"), rates.take("a") > 0) == (0.0, True)


def test_a_rate_is_that_of_all_hubs(clock: Clock) -> None:
    """Requests at one hub are counted at the other as soon as they are reported, and not twice."""
    here, there = RateLimits(10, clock), RateLimits(10, clock)
    assert [here.take("a", 2.0) for _ in range(4)] == [0.0] * 4
    there.add_elsewhere(here.passed())
    assert there.take("a", 2.0) == pytest.approx(0.5)
    assert (here.passed(), there.passed()) == ({}, {})
    clock.now += 1
    assert [each.take("a", 2.0) for each in (here, here)] == [0.0, 0.0]
    there.add_elsewhere(here.passed())
    assert there.take("a", 2.0) > 0
    clock.now += 3600
    there.add_elsewhere({"a": (1, 2.0)})
    assert [there.take("a", 2.0) for _ in range(3)] == [0.0] * 3
    assert there.take("a", 2.0) > 0


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback(host: str) -> None:
    """Addresses of this machine are loopback."""
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org", ""])
def test_not_loopback(host: str) -> None:
    """Nothing else is."""
    assert not is_loopback(host)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokens are made, listed without their secrets and taken back from the command line."""
    home = ["--home", str(tmp_path)]
    assert main(["hub", "token", "create", "--scope", "read", "--name", "me", *home]) == 0
    text = capsys.readouterr().out.strip()
    tokens = Tokens(tmp_path / "hub" / "tokens.json")
    found = tokens.find(text)
    assert found is not None
    assert (found.scopes, found.name) == (("read",), "me")
    assert main(["hub", "token", "list", *home]) == 0
    listed = capsys.readouterr().out
    assert found.id in listed
    assert text.rpartition("_")[2] not in listed
    assert main(["hub", "token", "revoke", found.id, *home]) == 0
    assert main(["hub", "token", "revoke", found.id, *home]) == 2


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("-inf")])
def test_a_rate_that_is_none_lets_nothing_pass_and_nobody_spin(clock: Clock, rate: float) -> None:
    """For any rate in the file, Retry-After is at most an hour."""
    rates = RateLimits(1000, clock)
    assert [rates.take("a", rate) for _ in range(3)] == [3600.0] * 3
    assert rates.take("a") == 0.0


@pytest.mark.parametrize(("rate", "wait"), [(1e-9, 3600.0), (1e9, 0.001), (float("inf"), 0.0)])
def test_waits_are_bounded(clock: Clock, rate: float, wait: float) -> None:
    """Retry-After is never zero and never years."""
    rates = RateLimits(1000, clock)
    rates._buckets["a"] = (0.0, clock.now)
    assert rates.take("a", rate) == wait
