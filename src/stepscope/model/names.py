"""Names on the wire: span names, attributes, categories, severities, and their aliases."""

from collections.abc import Collection

PARTIAL_HEADER = "X-Stepscope-Partial"
"""The HTTP header in which a hub names the shards of its store that are not in an answer."""

SPAN_RUN = "train.run"
SPAN_STEP = "train.step"

ATTR_RUN_ID = "train.run.id"
ATTR_STEP = "train.step"
ATTR_RANK = "dl.rank"
ATTR_WORLD_SIZE = "dl.world_size"
ATTR_LOCAL_RANK = "dl.local_rank"
SPAN_CHECKPOINT = "train.checkpoint"
ATTR_CHECKPOINT_PATH = "train.checkpoint.path"
ATTR_CHECKPOINT_BYTES = "train.checkpoint.bytes"
"""The size of the file that a span saved."""
ATTR_BUCKET = "train.bucket"
"""The bucket of a span's self time: one of `BUCKETS`."""
ATTR_SAMPLED = "train.sampled"
"""Of how many steps a span is a sample, where the same phase of the others has none."""

BUCKETS = ("productive", "overhead", "idle", "wasted")
SPAN_BUCKETS = {
    "train.forward": "productive",
    "train.backward": "productive",
    "train.optimizer_step": "productive",
    "train.data_load": "idle",
    "train.evaluate": "overhead",
    "train.checkpoint": "overhead",
    "train.checkpoint.save": "overhead",
    "train.checkpoint.load": "overhead",
    "rl.sample": "productive",
    "rl.reward": "productive",
    "rl.train": "productive",
    "rl.sync": "overhead",
    "forward_backward": "productive",
    "optim_step": "productive",
    "batch_processing": "productive",
    "validation": "overhead",
    "data_loading": "idle",
    "feature_engineering": "overhead",
}
"""The default bucket by span name."""

EVENT_STARTED = "train.run.started"
EVENT_FINISHED = "train.run.finished"
ATTR_RECEIVED_FROM = "received_from"
"""On a start: the foreign client it was made for, which sends no heartbeats and may end without an exit record."""
ATTR_HEARTBEAT = "stepscope.heartbeat_seconds"
"""On a writer's resource and its start: the heartbeat interval of its client, where that is not 5 s."""
EVENT_CONFIG = "train.config"
"""Settings that became known or changed after the start of a run; they are its attributes."""
EVENT_EDITED = "train.run.edited"
"""A process of a run changed its name, notes or tags; the attributes are those of a `Change`."""
EVENT_STOP = "train.stop.requested"
"""A process heard that a user asked it to stop: `request` and `who`; `asks` is whether the program looks for it."""
EVENT_STOPPED = "train.stop.done"
"""A process that was asked to stop ended its run in order; `request` and `who`."""
EVENT_LIVE = "train.live"
"""The settings that a program declared as changeable, with their values, as `settings`."""
EVENT_LIVE_CHANGED = "train.live.changed"
"""A process changed a live setting: `name`, `value`, `before`, `request` and `who`; with `refused` it did not."""
EVENT_CHECKPOINT = "train.checkpoint"
"""A checkpoint was saved: `path`, `id`, `step`, and `seconds` where the saving was timed."""
EVENT_CHECKPOINT_MEASURED = "train.checkpoint.measured"
"""The files of the checkpoint with an `id`: `bytes`, `files`, `manifest`, `content`, `complete`."""
EVENT_CHECKPOINT_LOADED = "train.checkpoint.loaded"
"""An attempt continues from the checkpoint at a `path`, of a `step` where that is known."""
EVENT_ARTIFACT = "train.artifact"
"""Files that a run made for others: `id`, `name`, `kind`, `path`, `step`, `copied`, and a client's `version`."""
EVENT_ARTIFACT_MEASURED = "train.artifact.measured"
"""The files of the artifact with an `id`: `bytes`, `files`, `manifest`, `content`, `complete`."""
EVENT_ARTIFACT_USED = "train.artifact.used"
"""A run uses an artifact: its `artifact` id, or its `name` and `version`, or its `path`."""
EVENT_CLOCK = "stepscope.clock_jump"
"""The clock of a process was set; `seconds` is the difference."""
KEY_BEATS = "stepscope/beats"
"""The metric that counts the heartbeats of a process; it is in each of them."""
OVERHEAD = "overhead/"
"""The beginning of the keys in a heartbeat that have the share of the time that Stepscope took."""
EVENT_REJECTED = "stepscope.rejected"
"""Keys and arguments of which a process could not record a value; `keys` has a reason for each."""
EVENT_MEDIA = "stepscope.media"
"""A logged file: `key`, `kind`, `sha256`, `size`, `format` and `name`, and what is known of caption, width, height."""
EVENT_EXCEPTION = "exception"
EVENT_EXITED = "process.exited"
"""The end of a process as another one saw it: `signal` or `status`, where they are known."""
ALERT_FINDING = "stepscope.finding"
"""An alert about a finding of the diagnosis in the trainer; `stepscope.finding.kind` and others describe it."""

EVENT_PARAMETERS = "torch.parameters"
"""Which parameters of a model are in no optimizer, or have no gradient."""
SCOPE_CONSOLE = "console."
"""The beginning of the scope of lines that a process printed; the stream follows."""
SCOPE_SAMPLES = "stepscope.samples"
"""The scope of samples: a log's body is then the name of a table, and its attributes are the columns of a row."""
EVENT_POSITION = "process.position"
"""Where a process stands still: `stack`, `seconds`, and of torch.distributed `collective`, `groups` and `recent`."""
COLLECTIVES = (
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_gather_single", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
"""The collectives of torch.distributed."""

ATTR_SAMPLE_RATE = "statsd.rate"
"""On a sampled value: the sampling rate; sums are divided by it."""
ATTR_SET_MEMBER = "statsd.member"
"""On a point of a `set`: the member, as text; the value is 1."""

ENDINGS = {
    **dict.fromkeys(("finished", "completed", "success"), "finished"),
    **dict.fromkeys(("failed", "failure", "error", "crashed", "aborted", "killed"), "failed"),
    **dict.fromkeys(("preempted", "terminated"), "preempted"),
}
"""Words for how a run ended, as other trackers use them, and the state each means."""

_CLEAR_STEPS = ("policy_version", "global_step", "step")
_VAGUE_STEPS = ("update", "timesteps")
STEP_FIELDS = (*_CLEAR_STEPS, *_VAGUE_STEPS)
"""Fields that can be the step of a reported row, in order of precedence; of rust_ppo's two the policy version wins."""

STEP_ALIASES = (
    ATTR_STEP,
    *_CLEAR_STEPS,
    "_step",
    "iteration",
    "dl.iteration",
    "megatron.iteration",
    "rl.step",
    "rl.iteration",
    *_VAGUE_STEPS,
)
"""Attributes that carry the step in all dialects, in order of precedence."""

CATEGORIES = {
    "trainer": "trainer",
    "train": "trainer",
    "actor": "actor",
    "act": "actor",
    "evaluator": "evaluator",
    "eval": "evaluator",
    "misc": "misc",
    "system": "system",
    "stepscope": "stepscope",
}
"""Accepted category words, lower case, and the prefix each one means."""
_WORDS_OF = {prefix: [word for word, each in CATEGORIES.items() if each == prefix] for prefix in CATEGORIES.values()}


def category_of(word: object) -> str:
    """The key prefix of a category word: the one it is an alias of, else the word itself in lower case."""
    text = str(word).strip().strip("/").lower()
    return CATEGORIES.get(text, text or "misc")


def canonical_key(key: str) -> str:
    """A metric's key with its canonical category: `train/loss` and `trainer/loss` are both `trainer/loss`."""
    category, slash, rest = key.partition("/")
    prefix = CATEGORIES.get(category.lower()) if slash else None
    return key if prefix is None or not rest else f"{prefix}/{rest}"


def recorded_key(name: str, keys: Collection[str]) -> str | None:
    """The one of some keys that a metric's name means: itself, else in another spelling of its category.

    A key without a category is the trainer's where that has no such key.
    """
    if name in keys:
        return name
    wanted = canonical_key(name)
    bare = wanted.removeprefix("trainer/") if "/" in wanted else f"trainer/{wanted}"
    found = {canonical_key(key): key for key in sorted(keys, reverse=True)}
    return found.get(wanted) or found.get(bare)


def spellings(key: str) -> list[str]:
    """The keys that a metric's name may refer to, the likeliest first: in each spelling of its category, or in any."""
    category, slash, rest = canonical_key(key).partition("/")
    if slash and category in _WORDS_OF:
        found = [key, *(f"{word}/{rest}" for word in _WORDS_OF[category]), rest]
    else:
        found = [key, *(f"{word}/{key}" for words in _WORDS_OF.values() for word in words)]
    return list(dict.fromkeys(found))


SEVERITIES = {
    "TRACE": 1,
    "DEBUG": 5,
    "INFO": 9,
    "WARN": 13,
    "WARNING": 13,
    "ERROR": 17,
    "FATAL": 21,
    "CRITICAL": 21,
}
"""Severity words and their OpenTelemetry numbers."""
LOGGING_LEVELS = {10: 5, 20: 9, 30: 13, 40: 17, 50: 21}
"""Levels of Python's logging and their OpenTelemetry numbers."""

# Attributes in which records keep what OpenTelemetry has as fields.
ATTR_EXEMPLARS = "otel.exemplars"
"""A point's exemplars, [{value, time, trace_id, span_id, attrs}], ids in hex; not part of the series."""

ATTR_SCOPE = "otel.scope."
"""Prefix of record attributes that hold a scope's version, schema_url and attributes."""

ATTR_SCOPE_NAME = ATTR_SCOPE + "name"
"""On events and alerts, which have no field for it."""

ATTR_RESOURCE_SCHEMA = "otel.resource.schema_url"
ATTR_RESOURCE_DROPPED = "otel.resource.dropped_attributes_count"
ATTR_DROPPED = "otel.dropped_attributes_count"
ATTR_DROPPED_EVENTS = "otel.dropped_events_count"
ATTR_DROPPED_LINKS = "otel.dropped_links_count"
ATTR_FLAGS = "otel.flags"
"""The flags of a link; spans and logs have a field for theirs."""

ATTR_TRACE_STATE = "w3c.tracestate"
"""The trace state of a span, or of a link among the link's attributes."""

ATTR_SEVERITY_TEXT = "otel.severity_text"
"""A severity word that is not one of OpenTelemetry's."""

ATTR_EVENT_NAME = "event.name"
"""Where the name of an event stood before log records had a field for it."""

_SEVERITY_WORDS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


UNSPECIFIED = "UNSPECIFIED"
"""The word for a record that was given no severity."""


def severity_word(number: int) -> str:
    """Name the severity of an OpenTelemetry number; 0 means that none was given."""
    return _SEVERITY_WORDS[min((number - 1) // 4, 5)] if number > 0 else UNSPECIFIED
