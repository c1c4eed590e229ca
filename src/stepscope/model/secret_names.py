"""Which names belong to secrets: `api_key` and `dsn` do, `max_tokens` and `key_dim` do not."""

import re

MASK = "[redacted]"

STEMS = (
    r"key|auth|pass|secret|token|cookie|credential|bearer|pwd|jwt|pat(?![ht])|dsn|hook|conn|account|signature|sas|mnemonic"
    r"|seed_phrase|netrc|kubeconfig"
)
"""One of these is in the name of every secret; most names have none, which is a quick test."""
_STEM = re.compile(STEMS)
_ANYWHERE = re.compile(
    r"(?:api|access|private|session|auth)[-_. ]?key|authorization|auth[-_. ]?header|passw(?:or)?d|passphrase|passcode"
    r"|secret|cookie|credential|bearer|(?:openai|anthropic|cohere|mistral|gemini|google|azure|aws|gcp|hf|huggingface"
    r"|wandb|datadog|comet)[-_. ]?keys?$"
    r"|service[-_. ]?account[-_. ]?(?:json|key|info|file)|shared[-_. ]?access[-_. ]?signature|connection[-_. ]?string"
)
_AT_END = re.compile(
    r"^(?:auth|pass)$|(?:^|[-_. /])(?:pwd|jwt|pgpass|netrc|kubeconfig|mnemonic|seed_phrase"
    r"|(?:ssh|gpg|pgp|rsa|aes|hmac|tls|ssl|sign(?:ing)?|encrypt(?:ion)?|decrypt(?:ion)?|cipher|crypto|fernet|deploy"
    r"|master|account|admin|root|app|application|consumer|service|shared|integration|ingest(?:ion)?|licen[cs]e"
    r"|subscription|webhook|github|gitlab|slack|neptune|sentry|stripe|twilio|sendgrid|mailgun|pinecone|weaviate|qdrant"
    r"|groq|together|replicate|fireworks|openrouter|deepseek|perplexity|nvidia|ngc|kaggle|clearml|mlflow|langsmith"
    r"|langchain|runpod|cloudflare|vault|dd|pagerduty|grafana)[-_. ]?keys?"
    r"|(?:x|http|basic|digest|proxy|registry|docker|npm|smtp)[-_. ]?auth"
    r"|(?:db|database|sql|mysql|pg|postgres|mongo|redis|mq|kafka|clickhouse|ldap|smtp|imap|mail|email|ftp|sftp|ssh|git"
    r"|https?|proxy|vpn|wifi|docker|registry|hub|user|login|account|admin|root|sudo|auth|service|server|cert|key"
    r"|keystore|my)[-_. /]?pass"
    r"|(?:github|gitlab|gh|git|azure|ado|devops|databricks|snowflake|airtable|docker|my|user)[-_. ]?pat"
    r"|(?:auth|access|api|refresh|security|hf|huggingface|github|gitlab|gh|slack|wandb|csrf|jwt)[-_. ]?tokens"
    r"|dsn|conn(?:ection)?[-_. ]?(?:str(?:ing)?|uri)|sas|sas[-_. ]?(?:url|uri)|(?:amz|goog)[-_. ]?signature"
    r"|web[-_. ]?hooks?(?:[-_. ]?(?:urls?|uris?|endpoints?|address))?)$"
)
"""Words such as `pass`, `key` and `tokens` belong to training too, so they need one beside them that does not."""
_VARIABLE = re.compile(r"(?:^|[-. /])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_KEY$")
_NO_SECRET_VARIABLE = re.compile(
    r"(?:^|[-_. /])(?:PRIMARY|FOREIGN|SORT|CACHE|GROUP|PARTITION|SHARD|PUBLIC|QUERY|JOIN|INDEX|LOOKUP|ROUTING|HASH"
    r"|DICT|IMAGE|TEXT|LABEL|INPUT|OUTPUT|DATA|METRIC|LOSS|FIELD|COLUMN|STATE|MAP|OBJECT|RANDOM|RNG|PRNG)_KEY$"
)
"""A variable of the environment that ends with _KEY is a secret, unless a word of data or databases precedes it."""
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
"""Characters at the end of a name in which those look; what they look for is shorter by far."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MEMO_LIMIT = 10_000
LONGEST_NAME = 256
"""Characters of a name that is remembered; there may be long texts among them."""
_memo: dict[str, bool] = {}


def is_secret(key: str) -> bool:
    """Tell whether a key names a secret; counts such as `max_tokens` or `tokens` do not."""
    known = _memo.get(key)
    if known is None:
        known = looks_secret(key)
        if len(_memo) < _MEMO_LIMIT and len(key) <= LONGEST_NAME:
            _memo[key] = known
    return known


_REFERENCES = (".arn", "_arn", "-arn")
"""The name of a resource of a cloud, not what is in it."""


def looks_secret(key: str) -> bool:
    """Tell the same without remembering it, for names without end."""
    if _STEM.search(key.lower()) is None:
        return False
    words = _CAMEL.sub("_", key).lower().strip()
    end = words[-_TAIL:]
    if end.endswith(_REFERENCES):
        return False
    if end.endswith("token") and _OF_TEXT.search(end) is None:
        return True
    if _ANYWHERE.search(words) is not None or _AT_END.search(end) is not None:
        return True
    last = key[-_TAIL:]
    return _VARIABLE.search(last) is not None and _NO_SECRET_VARIABLE.search(last) is None
