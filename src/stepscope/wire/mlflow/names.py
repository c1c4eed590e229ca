"""Names and limits of MLflow: paths, keys that it takes, the tags in which a run of ours is found again."""

import hashlib
import posixpath
import re
from urllib.parse import quote

API = "/api/2.0/mlflow/"
TRACES = "/v1/traces"

MOST_METRICS, MOST_PARAMS, MOST_TAGS = 1000, 100, 100
MOST_BYTES = 900_000
"""Of the million bytes a request may have."""
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG = 250, 6000, 5000

TAG_RUN = "stepscope.run_id"
TAG_ATTEMPT = "stepscope.attempt"
"""The newest attempt; a run without it was created and never used."""
TAG_PRESUMED = "stepscope.presumed_dead"
"""The attempt that ended without a word, and was ended by whoever found it dead."""
TAG_CREATOR = "stepscope.creator"
TAG_PROJECT = "stepscope.project"
TAG_HOST = "stepscope.host"
TAG_WORLD_SIZE = "stepscope.world_size"
TAG_GROUP, TAG_JOB_TYPE = "stepscope.group", "stepscope.job_type"
TAG_NOTE, TAG_NAME = "mlflow.note.content", "mlflow.runName"
"""Where MLflow's page looks for the description and the name of a run."""
TAG_COMMIT, TAG_BRANCH, TAG_SOURCE = "mlflow.source.git.commit", "mlflow.source.git.branch", "mlflow.source.name"

STATUSES = {"finished": "FINISHED", "preempted": "KILLED", "failed": "FAILED"}
"""How a process says it ended, mildest first, and what MLflow calls it."""

_LEGAL = re.compile(r"[\w\-. :/]+")
_ILLEGAL = re.compile(r"[^\w\-. :/]")
_DIGITS = 6
_MEMO_LIMIT = 20_000
_memo: dict[str, str] = {}


def legal_key(key: str) -> str:
    """Return a key as MLflow takes it; one that had to be changed ends in a digest, so that no two become one."""
    known = _memo.get(key)
    if known is None:
        known = key if is_legal(key) else _mend(key)
        if len(_memo) < _MEMO_LIMIT:
            _memo[key] = known
    return known


def is_legal(key: str) -> bool:
    """Tell whether MLflow takes a key: its letters, its length, and that it is no other path in disguise."""
    if len(key) > LONGEST_KEY or _LEGAL.fullmatch(key) is None:
        return False
    return posixpath.normpath(key) == key and key != "." and not key.startswith(("..", "/"))


def _mend(key: str) -> str:
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    parts = [part for part in _ILLEGAL.sub("_", key).split("/") if part]
    kept = "/".join("_" * len(part) if part in (".", "..") else part for part in parts)
    if kept.startswith(".."):
        kept = "_" + kept
    return f"{kept[: LONGEST_KEY - _DIGITS - 1]}-{digest}"


def shorten(text: str, longest: int) -> str:
    """Cut a text that is too long, and show that it was cut."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def run_mark(run: str) -> str:
    """Spell a run id so that it stands between quotes in MLflow's filter language; those of `init` stay as they are."""
    return quote(run, safe="")
