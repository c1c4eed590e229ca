"""Who this process is among those of its job."""

from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.extend import detect_launch


@dataclass(frozen=True, slots=True)
class DistInfo:
    """Rank and world size, as the launcher left them in the environment."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    launcher: str = "none"

    @classmethod
    def resolve(cls, env: Mapping[str, str] | None = None) -> "DistInfo":
        """Read the launcher's variables; a process that nobody launched is rank 0 of 1."""
        found = detect_launch(env)
        return cls(found.rank, found.local_rank, found.world_size, found.launcher)

    @property
    def is_main(self) -> bool:
        """Whether this is the first of all ranks."""
        return self.rank == 0
