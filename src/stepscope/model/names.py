"""Names on the wire: span names, attributes, categories, severities, and their aliases."""

SPAN_RUN = "train.run"
SPAN_STEP = "train.step"

ATTR_RUN_ID = "train.run.id"
ATTR_STEP = "train.step"
ATTR_RANK = "dl.rank"
ATTR_WORLD_SIZE = "dl.world_size"
ATTR_LOCAL_RANK = "dl.local_rank"
ATTR_BUCKET = "train.bucket"
"""What a span's own time was good for: one of `BUCKETS`."""

BUCKETS = ("productive", "overhead", "idle", "wasted")
SPAN_BUCKETS = {
    "train.forward": "productive",
    "train.backward": "productive",
    "train.optimizer_step": "productive",
    "train.data_load": "idle",
    "train.evaluate": "overhead",
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
"""The bucket of spans that say none themselves."""

EVENT_STARTED = "train.run.started"
EVENT_FINISHED = "train.run.finished"
EVENT_EXCEPTION = "exception"

ATTR_SAMPLE_RATE = "statsd.rate"
"""On a value of which only some were recorded, by chance: the share that was; a sum is scaled by its inverse."""
ATTR_SET_MEMBER = "statsd.member"
"""On a point of a `set`: what was seen, as text; the value is 1."""
ATTR_CHECK_STATUS = "datadog.check"
"""Makes an event a service check: OK, WARNING, CRITICAL or UNKNOWN; the event's name is the check's."""

STATUSES = ("running", "finished", "failed", "preempted")
"""How a writer says it fares; a reader may also conclude `stalled` or `crashed`."""

STEP_ALIASES = (
    "train.step",
    "step",
    "_step",
    "global_step",
    "iteration",
    "dl.iteration",
    "megatron.iteration",
    "rl.step",
    "rl.iteration",
)
"""Attributes that carry the step in other dialects, strongest first."""

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

_SEVERITY_WORDS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def severity_word(number: int) -> str:
    """Name the severity of an OpenTelemetry number."""
    return _SEVERITY_WORDS[min(max(number - 1, 0) // 4, 5)]
