"""Masking of values whose key looks like a secret."""

import re
from typing import Any

MASK = "[redacted]"

_SECRET = re.compile(
    r"api[-_. ]?key|access[-_. ]?key|private[-_. ]?key|authorization|^auth$|passw(or)?d|passphrase|secret|cookie"
    r"|credential|bearer|session[-_. ]?key|(^|[-_. ])pwd$|^x-amz-security-token$|auth[-_. ]?header"
    r"|(openai|anthropic|cohere|mistral|gemini|google|azure|aws|gcp|hf|huggingface|wandb|datadog|comet)[-_. ]?key$"
    r"|(^|[-_. /])(auth|access|api|id|refresh|security|session|hf|github|gh|wandb|csrf|write|read)?[-_. ]?token$",
    re.IGNORECASE,
)
_OF_TEXT = re.compile(
    r"(^|[-_. /])(bos|eos|pad|unk|mask|sep|cls|image|video|audio|start|stop|begin|end|next|first|last)[-_. ]?token$",
    re.IGNORECASE,
)
"""The tokens of a tokenizer."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MEMO_LIMIT = 10_000
_memo: dict[str, bool] = {}


def is_secret(key: str) -> bool:
    """Tell whether a key names a secret; counts such as `max_tokens` or `tokens` do not."""
    known = _memo.get(key)
    if known is None:
        words = _CAMEL.sub("_", key)
        known = _SECRET.search(words) is not None and _OF_TEXT.search(words) is None
        if len(_memo) < _MEMO_LIMIT:
            _memo[key] = known
    return known


def redact(value: Any) -> Any:
    """Copy nested dicts and lists with every secret value masked."""
    if isinstance(value, dict):
        return {key: MASK if isinstance(key, str) and is_secret(key) else redact(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(inner) for inner in value]
    return value
