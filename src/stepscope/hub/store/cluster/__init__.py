"""A ClickHouse server or cluster as the store: connections, shards, and which hub writes to which shard."""
