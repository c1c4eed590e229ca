"""What `flush` and `finish` report: how far the records of this process have come."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """True when all that was asked for is done; otherwise the fields say what is missing."""

    done: bool
    """For `flush`, that all is in the journal; for `finish(wait=...)`, that every remote sink has taken it too."""
    undelivered: int | None = 0
    """Bytes of this process's journal that the sink furthest behind does not have yet; None when that is unknown:
    no time was left, or the disk cannot be read."""
    rejected: int | None = 0
    """Records of this process that sinks have refused so far; None when that is unknown."""
    quarantined: int | None = 0
    """How many of these are in quarantine, from where `stepscope quarantine retry` offers them again."""

    def __bool__(self) -> bool:
        return self.done


NOTHING_LEFT = DeliveryStatus(True)
"""The status where nothing is recorded."""
