"""What a shard is known to have becomes due for every answer after a while."""

from stepscope.hub.store.cluster.commit_levels import GRACE_SECONDS, CommitLevels


class Clock:
    """A clock that stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def test_a_commit_is_due_after_a_while_also_when_others_follow() -> None:
    """Commits that come faster than they become due do not put each other off, and the last one becomes due, too."""
    clock = Clock()
    levels = CommitLevels(clock)
    for commit in range(1, 5):
        levels.note(0, commit)
        assert levels.behind({}) == ([1] if commit > 2 else [])
        clock.now += GRACE_SECONDS * 0.6
    assert levels.expected()[0] >= 1
    for _ in range(2):
        levels.expected()
        clock.now += GRACE_SECONDS
    assert (levels.expected(), levels.behind({0: 3}), levels.behind({0: 4})) == ({0: 4}, [1], [])


def test_what_no_replica_has_is_not_due() -> None:
    """A commit that was taken back, or read by mistake, does not make all later answers partial."""
    clock = Clock()
    levels = CommitLevels(clock)
    levels.note(1, 7)
    clock.now += GRACE_SECONDS
    assert levels.behind({1: 6}) == [2]
    levels.replace(1, 6)
    assert levels.behind({1: 6}) == []
    levels.note(1, 8)
    clock.now += GRACE_SECONDS
    assert levels.behind({1: 6}) == [2]
