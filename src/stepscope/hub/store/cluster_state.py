"""What of a cluster answers: its shards, its servers, and ZooKeeper."""

from msgspec import Struct


class ClusterState(Struct, frozen=True):
    """The state of a cluster as one hub sees it."""

    shards: int
    missing_shards: tuple[int, ...] = ()
    """Shards of which no replica answers; their numbers begin with 1."""
    servers: int = 0
    """The servers of the store's address."""
    servers_down: tuple[str, ...] = ()
    zookeeper: bool = True
    """Whether ZooKeeper, or Keeper, answers the servers."""

    @property
    def trouble(self) -> str:
        """What does not work, and what follows from it; empty when all works."""
        if self.missing_shards:
            named = ", ".join(map(str, self.missing_shards))
            return (
                f"shard {named} of {self.shards} does not answer: its runs are missing from answers, which say so, "
                "and new records of them wait in the journals"
            )
        if not self.zookeeper:
            return "ZooKeeper does not answer the servers: nothing is stored until it is back, reads go on"
        if self.servers_down:
            return f"{len(self.servers_down)} of {self.servers} servers do not answer: {', '.join(self.servers_down)}"
        return ""
