"""How far the records of a process have come: what `flush` and `finish` report."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """True when all that was asked for is done; says too what remote sinks do not have yet."""

    done: bool
    """For `flush`, that all is in the journal; for `finish(wait=...)`, that every remote sink has it too."""
    undelivered: int | None = 0
    """Bytes of this process's journal that the sink furthest behind does not have yet; None when nobody
    can tell: no time was left, or the disk does not say."""

    def __bool__(self) -> bool:
        return self.done


NOTHING_LEFT = Standing(True)
"""What there is to say where nothing is recorded."""
