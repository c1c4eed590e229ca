"""Masking of values whose key looks like a secret."""

import re
from collections.abc import Iterable
from typing import Any

MASK = "[redacted]"

_STEMS = ("key", "auth", "pass", "secret", "token", "cookie", "credential", "bearer", "pwd", "jwt", "pat")
"""One of these is in the name of every secret; most names have none, which is quickly told."""
_ANYWHERE = re.compile(
    r"(?:api|access|private|session|auth)[-_. ]?key|authorization|auth[-_. ]?header|passw(?:or)?d|passphrase|secret"
    r"|cookie|credential|bearer|(?:openai|anthropic|cohere|mistral|gemini|google|azure|aws|gcp|hf|huggingface|wandb"
    r"|datadog|comet)[-_. ]?keys?$"
)
_AT_END = re.compile(
    r"^(?:auth|pass)$|(?:^|[-_. /])(?:pwd|jwt"
    r"|(?:ssh|gpg|pgp|rsa|aes|hmac|tls|ssl|sign(?:ing)?|encryption|decryption|deploy|master|account|licen[cs]e"
    r"|subscription|webhook|github|gitlab|slack|neptune)[-_. ]?keys?"
    r"|(?:x|http|basic|digest|proxy)[-_. ]?auth"
    r"|(?:db|database|sql|mysql|pg|postgres|mongo|redis|mq|kafka|clickhouse|ldap|smtp|imap|mail|email|ftp|sftp|ssh|git"
    r"|https?|proxy|vpn|wifi|docker|registry|hub|user|login|account|admin|root|sudo|auth|service|server|cert|key"
    r"|keystore|my)[-_. /]?pass"
    r"|(?:github|gitlab|gh|git|azure|ado|devops|databricks|snowflake|airtable|docker|my|user)[-_. ]?pat"
    r"|(?:auth|access|api|refresh|security|hf|huggingface|github|gitlab|gh|slack|wandb|csrf|jwt)[-_. ]?tokens)$"
)
"""Words such as `pass`, `key` and `tokens` are of training too, so they need one beside them that is not."""
_OF_TEXT = re.compile(
    r"(?:^|[-_. /])(?:bos|eos|pad|padding|unk|unknown|mask|masked|sep|separator|cls|class|boi|eoi|boa|eoa|img|image"
    r"|video|audio|speech|vision|visual|text|word|lang|language|timestamp|begin|start|stop|end|next|prev|previous"
    r"|current|first|middle|last|prefix|suffix|special|added|extra|control|sentinel|placeholder|register|new|drop"
    r"|dropped|bad|ignore|skip|blank|empty|newline|think|thinking|reasoning|input|output|prompt|completion|generated"
    r"|sampled|predicted|target|label|draft|assistant|human|num|n|max|min|avg|mean|per|each|every|single|multi)"
    r"[-_. ]?token$"
)
"""The tokens of a tokenizer, and what is counted by them; any other single token is a secret."""
_TAIL = 64
"""Characters at the end of a name in which those two look; what they look for is shorter by far."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"\S{1,64}")
"""A name, where any text may stand."""
_MEMO_LIMIT = 10_000
_LONGEST_NAME = 256
"""Characters of a name that is remembered; there may be long texts among them."""
_memo: dict[str, bool] = {}


def is_secret(key: str) -> bool:
    """Tell whether a key names a secret; counts such as `max_tokens` or `tokens` do not."""
    known = _memo.get(key)
    if known is None:
        known = _looks_secret(key)
        if len(_memo) < _MEMO_LIMIT and len(key) <= _LONGEST_NAME:
            _memo[key] = known
    return known


def _looks_secret(key: str) -> bool:
    name = key.lower()
    if not any(stem in name for stem in _STEMS):
        return False
    words = _CAMEL.sub("_", key).lower().strip()
    end = words[-_TAIL:]
    if end.endswith("token") and _OF_TEXT.search(end) is None:
        return True
    return _ANYWHERE.search(words) is not None or _AT_END.search(end) is not None


def key_text(key: Any) -> Any:
    """Decode a key of bytes, as servers give headers; any other is returned as it is."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, (bytes, bytearray)) else key


def hides(key: Any) -> bool:
    """Tell whether a key of any type names a secret."""
    if type(key) is not str:
        key = key_text(key)
    return isinstance(key, str) and is_secret(key)


def mask_pairs(values: Iterable[Any]) -> list[Any]:
    """Copy a list, masking the second of each pair in it whose first names a secret, as lists of headers have them."""
    return [
        (inner[0], MASK) if isinstance(inner, (list, tuple)) and len(inner) == 2 and _heads_secret(inner[0]) else inner
        for inner in values
    ]


def _heads_secret(first: Any) -> bool:
    """Tell it of one word; not remembered, for the first of a pair may be any text and there is no end of them."""
    if not isinstance(first, (str, bytes, bytearray)):
        return False
    name = key_text(first[:_LONGEST_NAME])
    return _WORD.fullmatch(name) is not None and _looks_secret(name)


def redact(value: Any) -> Any:
    """Copy nested dicts and lists with every secret value masked."""
    if isinstance(value, dict):
        return {key: MASK if hides(key) else redact(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(inner) for inner in mask_pairs(value)]
    return value
