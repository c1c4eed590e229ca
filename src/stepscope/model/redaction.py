"""Find and mask secrets: names that announce one, and texts, lists and dicts that hold one."""

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

MASK = "[redacted]"


class _Expression:
    """A regular expression that is compiled at its first use: all of these together take longer than other imports."""

    def __init__(self, text: str, flags: "int | re.RegexFlag") -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(name)
        made = re.compile(self._text, self._flags)
        self.__dict__.update((each, getattr(made, each)) for each in _METHODS)
        return getattr(made, name)


_METHODS = ("findall", "finditer", "fullmatch", "match", "pattern", "flags", "search", "sub")


def _compile(text: str, flags: "int | re.RegexFlag" = 0) -> "re.Pattern[str]":
    return cast("re.Pattern[str]", _Expression(text, flags))


STEMS = (
    "key", "auth", "pass", "secret", "token", "cookie", "cred", "bearer", "pwd", "jwt", "dsn", "hook", "conn",
    "account", "signature", "sas", "mnemonic", "phrase", "netrc", "npmrc", "pypirc", "docker_c", "dockerc", "kube",
    "sess", "otp", "security_answer", "psk", "_pw", "pswd", "hmac", "cvv", "saml", "assertion", "csrf", "xsrf",
    "id_rsa", "id_ed", "ticket", "honeycomb_t", "honeycomb-t", "jaas",
    "kennwort", "contrase", "senha", "парол", "密码", "密碼", "パスワード",
)  # fmt: skip
"""One of these, or of the next, is in the name of every secret; most names have none, so this is a fast first test."""
_RARE_STEMS = {
    "pat": _compile(r"pat(?![ht])"),
    "code": _compile(
        r"(?:recovery|backup|ication|security|access|device|time|2fa|mfa|unlock|login|pairing|pin)[-_. ]?code"
        r"|code_verifier"
    ),
    "seed": _compile(r"(?:wallet|2fa|mfa|hd)[-_. ]?seed|seed[-_. ]?words"),
    "pw": _compile(r"\bpw\b|[. -]pw\b"),
}
"""Parts of common words, with what tells them apart."""
_ANYWHERE = _compile(
    r"(?:api|access|private|session|auth)[-_. ]?key|authorization|auth[-_. ]?header|passw(?:or)?[dt]|pass[-_. ]?phrase"
    r"|passcode|kennwort|contrase[nñ]a|пароль|密码|密碼|パスワード"
    r"|secret|cookie|credential|bearer|(?:openai|anthropic|cohere|mistral|gemini|google|azure|aws|gcp|hf|huggingface"
    r"|wandb|datadog|comet)[-_. ]?keys?$"
    r"|service[-_. ]?account[-_. ]?(?:json|key|info|file)|shared[-_. ]?access[-_. ]?signature|connection[-_. ]?string"
)
_AT_END = _compile(
    r"^_?(?:auth|pass|pw)$"
    r"|(?:^|[-_. /])(?:creds?|pwd|pswd|psk|jwt|pgpass|netrc|npmrc|pypirc|kubeconfig|docker_?cfg"
    r"|docker_?config_?json|mnemonic|otp|pin_?code|cvv|hmac|csrf|xsrf|senha|id_rsa|id_ed25519|passkey|key_?material"
    r"|key_?tab|key_?pem|security_answer|client[-_]key[-_]data|client_assertion|saml_(?:response|assertion)|code_verifier"
    r"|(?:totp|otp|mfa|2fa|hd|wallet|mnemonic|recovery|backup)[-_. ]?(?:seed|phrase|words)|seed[-_. ]?(?:phrase|words)"
    r"|(?:php|j|aspx?)?sess(?:ion)?id|(?:recovery|backup|verification|authentication|auth|access|device|one[-_]?time"
    r"|security|mfa|2fa|t?otp|unlock|login|pairing)[-_. ]?codes?|(?:auth|session|login|kerberos)[-_. ]?ticket"
    r"|(?:ssh|gpg|pgp|rsa|aes|hmac|tls|ssl|sign(?:ing)?|encrypt(?:ion)?|decrypt(?:ion)?|cipher|crypto|fernet|deploy"
    r"|master|account|admin|root|app|application|consumer|service|shared|integration|ingest(?:ion)?|licen[cs]e"
    r"|subscription|webhook|github|gitlab|slack|neptune|sentry|stripe|twilio|sendgrid|mailgun|pinecone|weaviate|qdrant"
    r"|groq|together|replicate|fireworks|openrouter|deepseek|perplexity|nvidia|ngc|kaggle|clearml|mlflow|langsmith"
    r"|langchain|runpod|cloudflare|vault|dd|pagerduty|grafana|routing|storage|blob|cosmos|kms|cmk|priv|identity|unseal"
    r"|wrapping|host|server|client|cert|ca|write|sdk|instrumentation|activation|pre[-_. ]?shared|merchant|payment"
    r"|wireguard|wg|tailscale|bot|intake|tinker|tml|voyage|jina|tavily|firebase|supabase|algolia|mapbox|postmark"
    r"|mixpanel|amplitude|segment|launchdarkly|posthog|pushover|fcm|vapid|honeycomb|new[-_. ]?relic|bugsnag|rollbar"
    r"|opsgenie|victorops|telegram|discord|elevenlabs|deepl|serp|modal|anyscale|functions|minio|wasabi"
    r"|apns|maps|serial|wallet|heroku|vercel|netlify|upstash|neon|atlas|elastic|opensearch|milvus|zilliz"
    r"|lightning|determined|signoz|axiom|dash0|logfire|langfuse|braintrust|arize|service[-_. ]?role|radius"
    r"|tacacs|bitlocker|saml|sso|logdna|puppet|chef|rapid[-_. ]?api)[-_. ]?keys?"
    r"|(?:bind|user|db|admin|root|login|my|svc|service|smtp|ldap|ssh|mysql|pg|mail|email|account|keystore|cert)[-_. ]pw"
    r"|(?:x|https?|basic|digest|proxy|registry|docker|npm|smtp|redis|mongo|db|kafka|git|api|bearer|user|client|service"
    r"|server|login|admin|wandb|mlflow|grafana|elastic|clickhouse|zookeeper|dash0)[-_. ]?auth"
    r"|honeycomb[-_]team|jaas[-_. ]config"
    r"|(?:db|database|sql|mysql|pg|postgres|mongo|redis|mq|kafka|clickhouse|ldap|smtp|imap|mail|email|ftp|sftp|ssh|git"
    r"|https?|proxy|vpn|wifi|docker|registry|hub|user|login|account|admin|root|sudo|auth|service|server|cert|key"
    r"|keystore|truststore|my|rabbitmq|amqp|mariadb|mssql|oracle|neo4j|elastic|grafana|jenkins|nexus|artifactory|ipmi"
    r"|become|superuser|dba|replication|zip|p12|pfx|jks|wlan|client|bot)[-_. /]?pass"
    r"|(?:github|gitlab|gh|git|azure|ado|devops|databricks|snowflake|airtable|docker|my|user)[-_. ]?pat"
    r"|(?:auth|access|api|refresh|security|hf|huggingface|github|gitlab|gh|slack|wandb|csrf|jwt|bot|bearer|deploy|join"
    r"|vault|npm|pypi|openai|anthropic)[-_. ]?tokens"
    r"|dsn|conn(?:ection)?[-_. ]?(?:str(?:ing)?|uri)|sas|sas[-_. ]?(?:url|uri)|(?:amz|goog)[-_. ]?signature"
    r"|web[-_. ]?hooks?(?:[-_. ]?(?:urls?|uris?|endpoints?|address))?)$"
)
"""Words such as `pass`, `key` and `tokens` are common in training, so they count only beside certain others."""
_VARIABLE = _compile(r"(?:^|[-. /])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|PASS)$")
_NO_SECRET_VARIABLE = _compile(
    r"(?:^|[-_. /])(?:PRIMARY|FOREIGN|SORT|CACHE|GROUP|PARTITION|SHARD|PUBLIC|QUERY|JOIN|INDEX|LOOKUP|HASH"
    r"|DICT|IMAGE|TEXT|LABEL|INPUT|OUTPUT|DATA|METRIC|LOSS|FIELD|COLUMN|STATE|MAP|OBJECT|RANDOM|RNG|PRNG)_KEY$"
    r"|(?:^|[-_. /])(?:FORWARD|BACKWARD|FIRST|SECOND|LAST|ONE|TWO|SINGLE|MULTI|NUM|PER|LOW|HIGH|BAND|ALL|TEST)_PASS$"
)
"""An environment variable that ends with _KEY or _PASS is a secret, unless a word of data or training precedes it."""
_OF_TEXT = _compile(
    r"(?:^|[-_. /])(?:bos|eos|pad|padding|unk|unknown|mask|masked|sep|separator|cls|class|boi|eoi|boa|eoa|img|image"
    r"|video|audio|speech|vision|visual|text|word|lang|language|timestamp|begin|start|stop|end|next|prev|previous"
    r"|current|first|middle|last|prefix|suffix|special|added|extra|control|sentinel|placeholder|register|new|drop"
    r"|dropped|bad|ignore|skip|blank|empty|newline|think|thinking|reasoning|input|output|prompt|completion|generated"
    r"|sampled|predicted|target|label|draft|assistant|human|num|n|max|min|avg|mean|per|each|every|single|multi)"
    r"[-_. ]?token$"
)
"""Special tokens of a tokenizer, and token counts; any other single token is a secret."""
_TAIL = 64
"""Characters at the end of a name that these patterns search."""
_CAMEL = _compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MEMO_LIMIT = 10_000
LONGEST_NAME = 256
"""The longest name that is cached."""
_memo: dict[str, bool] = {}


def is_secret(key: str) -> bool:
    """Return whether a key names a secret; counts such as `max_tokens` or `tokens` do not."""
    known = _memo.get(key)
    if known is None:
        known = looks_secret(key)
        if len(_memo) < _MEMO_LIMIT and len(key) <= LONGEST_NAME:
            _memo[key] = known
    return known


def _has_stem(lower: str) -> bool:
    """Return whether a text in lower case may name a secret. Searching one by one is faster than an expression."""
    for stem in STEMS:
        if stem in lower:
            return True
    return any(stem in lower and exact.search(lower) is not None for stem, exact in _RARE_STEMS.items())


_REFERENCES = (".arn", "_arn", "-arn")
"""Names of cloud resources, not their contents."""


def looks_secret(key: str) -> bool:
    """The same without caching, for unbounded sets of names."""
    if not _has_stem(key.lower()):
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


SHORTEST = 6
"""The shortest text that can hold a secret together with its name."""

_MASKED = _compile(
    r"[\[<({]*(?:redacted|filtered|masked|hidden|removed|scrubbed|sanitized|obfuscated)[\])}>]*"
    r"|.{0,4}\*{3,}.{0,4}|\*+|x{3,}|\?+|•+|\.{3,}|…",
    re.IGNORECASE,
)
_PLACEHOLDER = _compile(
    r"\$\{?[A-Z][A-Z0-9_]*\}?|\$?\{++(?![^\W\d]*\d(?:[^\W\d]*\d){2}\w{6})[\w. ]*\}*|<[\w -]{1,32}>?|%\(\w+\)s|%[sr]"
    r"|(?i:none|null|nil|true|false)"
)
"""Placeholders in templates, and empty values; a word with several digits in braces is one of a connection string."""
_MAX_HARMLESS = 256
"""The longest value that can be a placeholder, a call or prose; longer ones are masked, which keeps masking linear."""
_CALL = _compile(r"[a-z_][\w.]*[(\[].*", re.IGNORECASE)
"""Code that computes a value, as tracebacks show it."""
_NUMBER = _compile(r"[-+]?\d{1,9}(?:\.\d+)?%?")
_WEAK = _compile(r"(?:token|pass|auth|cookie|jwt|pat)s?", re.IGNORECASE)
"""Names that are often counts: a number after one is not a secret."""

_PROSE = _compile(r"[a-z]+(?:=.*)?")
"""A word after `pass:` or `auth:`, which occur in prose."""

_ARN = _compile(r"arn:aws[\w-]*:[\w-]+:[\w-]*:\d*:[\w:/.*-]{1,256}")
"""The name of an Amazon resource, which may be the name of a secret."""
_LOGIN = _compile(r"(?<=://)(?:[^\s/?#\"'<>@:]*+:[^\s/?#\"'<>]*|[^\s/?#\"'<>@:]{16,}+)(?=@)")
"""User name and password in a URL, or a token in their place; a user name alone, as in ssh://git@host, is no secret."""
_ODD_LOGIN = _compile(r"(?<=://)[^\s/?#\"'<>@:]{0,64}+:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,256}+(?=@[\w.-]++(?:[:/]|$))")
"""The same where the password has a character that should have been escaped."""
_ORACLE_LOGIN = _compile(r"(:thin:[\w$#.-]{1,64}+/)[^\s@/\"']{1,128}+(?=@)")
_BARE_LOGIN = _compile(
    r"(?<![\w.@/:-])[\w.-]{1,64}+:[^\s:@/\"']{3,128}+"
    r"(?=@(?:tcp\(|unix\(|localhost\b|\d{1,3}(?:\.\d{1,3}){3}\b|[\w.-]{1,253}+:(?:\d{2,5}\b|[/~])))"
)
"""NAME:PASSWORD@HOST without a scheme, as database drivers accept it."""
_COMMAND = _compile(
    r"\b(?P<mysql>(?:mysql|mariadb)[\w-]{0,16}+)(?=\s)|\b(?P<sshpass>sshpass)(?=\s)|\b(?P<redis>redis-cli)(?=\s)"
    r"|\b(?P<login>(?:docker|podman|az|skopeo|oras|crane)\s{1,8}login|mongo(?:sh|dump|restore)?)(?=\s)"
    r"|\b(?P<ldap>ldap(?:search|modify|add|delete|passwd|whoami|compare))(?=\s)|\b(?P<openssl>openssl)(?=\s)"
    r"|\b(?P<zip>(?:un)?zip|sqlcmd)(?=\s)|\b(?P<seven>7z[ar]?)(?=\s)|\b(?P<keygen>ssh-keygen)(?=\s)"
    r"|\b(?P<useradd>user(?:add|mod))(?=\s)|\s-(?P<option>[pawkPN])(?P<gap>\s{0,8}+[\"']?)(?P<value>(?!\[redacted\])[^\s\"'|;]++)?|[|;\n]"
)
"""Commands whose option for a password is one letter, such options, and what ends a command."""
_SHORT_OPTIONS = {
    "mysql": ("p", False), "sshpass": ("p", None), "redis": ("a", True), "login": ("p", True),
    "ldap": ("w", True), "openssl": ("k", True), "zip": ("P", True), "seven": ("p", False), "keygen": ("N", True),
    "useradd": ("p", True),
}  # fmt: skip
"""The letter of each, and whether a blank stands before its value; None for either."""
_OPTIONS = (" -p", " -a ", " -w ", " -k ", " -P ", " -N ")
_MAX_COMMAND = 256
"""Characters between a command and its option."""
_LOGIN_COMMAND = _compile(
    r"(\b(?:wandb|vault|neptune|comet|clearml)\s{1,8}login\s{1,8}(?:--?[\w-]{1,32}\s{1,8}){0,4})([\w.-]{16,}+)"
)
_LOGIN_OPTION = _compile(r"(?<![\w-])((?:-u|--user|--proxy-user)[\s=]++[^\s:\"']{0,64}+:)[^\s\"']+")
_HOOK = _compile(
    r"(?<=://)((?:[\w-]{1,63}+\.){0,4}?hooks\.[\w.-]{1,253}+(?::\d{1,5})?/|[\w.-]{1,253}\.webhook\.office\.com/"
    r"|api\.telegram\.org/bot|[\w.:-]{1,253}+(?:/[\w.-]{1,64}+){0,4}/(?:webhooks?|hooks?|webhookb2)/)"
    r"(?=[^\s\"'<>\d]{0,256}+\d)[^\s\"'<>]{16,}+"
)
"""A webhook, whose path is a credential."""

_LONG_WORD = 20
"""The shortest word that can hold one of the keys below."""
_LONG = b"x" * _LONG_WORD
_WITHOUT_LETTERS = bytes(32 if code < 128 and chr(code).isspace() else 120 for code in range(256))
"""Turns all bytes but blanks into an x: a fast way to find out whether there is a long word."""
_ONLY_ASCII = bytes(code if code < 128 else 32 for code in range(256))
_SHORTEST_KEY = 12
"""The shortest of those keys; beside letters that are not ASCII it may be a part of a long word."""
_BEGINNINGS = tuple(beginning.encode() for beginning in (
    "sk-", "k_live_", "k_test_", "k_prod_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "gldt-", "glrt-", "glsoat-", "glcbt-", "glptt-", "glsa_", "glc_", "hf_", "api_org_", "wandb_v1_", "AKIA", "ASIA",
    "ABIA", "ACCA", "AIza", "ya29.", "GOCSPX-", "xox", "xapp-", "eyJ", "SG.", "key-", "npm_", "pypi-", "_v1_", "dapi",
    "gsk_", "nvapi-", "r8_", "lsv2_", "hvs.", "hvb.", "hvr.", "AGE-SECRET", "shpat_", "shpss_", "shpca_", "shppa_",
    "lin_api_", "lin_oauth_", "ntn_", "tskey-", "sntrys_", "sntryu_", "dckr_", "pplx-", "xai-", "fw_", "pcsk_",
    "rpa_", "tvly-", "NRAK-", "rnd_", "dp.pt.", "dp.st.", "dp.ct.", "figd_", "sbp_", "EAA", "PMAK-", "LTAI", "SK",
    "Q~", "sst_", "tml-", "ATATT3", "ATCTT3", "ATBB", "sess-", "sq0", "pscale_", "nfp_", "fm1_", "fm2_", "bkua_",
    "CCIPAT_", "HRKU-", ":AA", "LS0tLS1CRUdJTi", "FwoGZXIvYXdz", "IQoJb3JpZ2lu", "secret_", "phx_", ".atlasv1.", "e2b_",
    "ak-", "as-",
))  # fmt: skip
"""Prefixes of those keys: in a long text, searching for these is faster than the pattern."""
_SHORT_TEXT = 128
_KEYS = _compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?=[\w-]{0,200}\d)[\w-]{16,}|[srp]k_(?:live|test|prod)_\w{10,}|whsec_[\w+/=]{16,}"
    r"|gh[pousr]_\w{16,}|github_pat_\w{16,}|gl(?:pat|dt|rt|soat|cbt|ptt)-[\w.-]{16,}|gl(?:sa|c)_[\w+/=-]{20,}"
    r"|hf_(?=\w{0,200}[A-Z0-9])\w{16,}|api_org_\w{16,}|wandb_v1_\w{16,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[\w-]{30,}|ya29\.[\w.-]{16,}|GOCSPX-[\w-]{16,}"
    r"|xox[a-z](?:\.xox[a-z])?-[\w-]{10,}|xapp-[\w-]{16,}|eyJ[\w-]{14,}(?:\.[\w-]*){0,4}={0,2}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|key-[0-9a-f]{32}|npm_\w{30,}|pypi-[\w-]{30,}|do[opr]_v1_\w{32,}|dapi[0-9a-f]{32}(?:-\d)?"
    r"|gsk_\w{20,}|nvapi-[\w-]{20,}|r8_\w{20,}|lsv2_(?:pt|sk)_\w{16,}|hv[sbr]\.[\w-]{20,}|AGE-SECRET-KEY-[\w]{20,}"
    r"|shp(?:at|ss|ca|pa)_\w{16,}|lin_(?:api|oauth)_\w{16,}|ntn_\w{20,}|tskey-[\w-]{16,}|sntry[su]_[\w+/=.-]{20,}"
    r"|dckr_(?:pat|oat)_[\w-]{16,}|pplx-\w{20,}|xai-\w{20,}|fw_\w{20,}|pcsk_\w{20,}|rpa_\w{20,}|tvly-[\w-]{20,}"
    r"|NRAK-\w{20,}|rnd_\w{24,}|tgp_v1_[\w-]{20,}|dp\.(?:pt|st|ct)\.[\w.-]{20,}|figd_[\w-]{20,}|sbp_\w{20,}|EAA\w{40,}"
    r"|PMAK-[\w-]{20,}|LTAI\w{12,}|SK[0-9a-f]{32}(?!\w)|[\w~.-]{3}\dQ~[\w~.-]{31,34}"
    r"|sst_\w{16,}|tml-(?=[\w-]{0,200}\d)[\w-]{16,}|AT(?:ATT|CTT)3[\w=-]{20,}|ATBB\w{28,}|sess-\w{32,}|sq0(?:atp|csp)-[\w-]{20,}"
    r"|pscale_(?:tkn|pw|oauth)_[\w.-]{20,}|nfp_\w{30,}|fm[12]_[\w+/=-]{30,}|bkua_\w{30,}|CCIPAT_\w{20,}|HRKU-[\w-]{30,}"
    r"|\d{8,10}:AA[\w-]{33}|LS0tLS1CRUdJTi(?!BDRVJU|BQVUJM)[\w+/=]{20,}|(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[\w+/=%]{40,}"
    r"|(?:sb_)?secret_(?=\w{0,60}\d)\w{30,}|phx_\w{30,}|[\w-]{14}\.atlasv1\.[\w-]{40,}|e2b_\w{30,}|a[ks]-[A-Za-z0-9]{22}(?![\w-]))"
)
"""Keys with a prefix that identifies the service, long enough not to be a word."""
_PEM = _compile(
    r"(-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}+)(?!\[redacted\]).*?(?=-{4,5} ?END |\Z)", re.DOTALL
)
_SCHEME = _compile(r"\b(bearer|basic)(\s++)([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_QUERY = _compile(r"([?&](?:key|sig|signature|code)=)(?=[^\s&#\"'<>\d]{0,256}+\d)[^\s&#\"'<>]{16,}+", re.IGNORECASE)

_SENTENCE = _compile(
    r"(?<![A-Za-z])((?:(?:api|access|private)[ _-]?key|token|password|passphrase|secret)"
    r"(?: (?:for|of) [^\s\"'`]{1,64}+)?(?: (?:is|was|of|to|provided|given|supplied|used|(?:re)?set to|changed to))?"
    r"(?: ?[:=])?\s{1,8}[\"'`]?)"
    r"(?=[^\s\"'`\d]{0,128}+\d)(?=[^\s\"'`A-Za-z]{0,128}+[A-Za-z])([\w+/=.~!#$%^&*-]{16,}+)",
    re.IGNORECASE,
)
"""A secret in a sentence, as exceptions have them: a long word of letters and digits behind what it is."""
_STATEMENT = _compile(
    r"(\b(?:password|identified(?: with \w{1,32})? by|requirepass|masterauth)\s{1,8}[\"'])"
    r"(?=[^\s\"'\d]{0,128}+\d)([^\s\"']{4,128}+)(?=[\"'])",
    re.IGNORECASE,
)
"""A password in a statement of SQL or of a configuration."""
_PIPED = _compile(
    r"(\becho\s{1,8}(?:-n\s{1,8})?[\"']?)[^\s\"'|]{4,256}+(?=[\"']?\s{0,8}\|[^|\n]{0,128}(?:-stdin|passwd|sudo -S)\b)"
)
"""A password that a shell passes to the input of a command."""
_DIGEST = _compile(r"(\bresponse=\"?)([A-Za-z0-9]{16,}+)")
_MADE = _compile(
    r"(\b\w{0,32}(?:secret(?:str|bytes)?|password|credentials?|api_?key|bearer_?auth)\([bru]?[\"']"
    r"|\b(?:HTTP(?:Basic|Digest)Auth|login|authenticate|sign_?in)\([\"'][^\"'\n]{0,64}[\"'],\s?[\"']"
    r"|\blogin\(key=[\"'])([^\"'\n]{4,256}+)(?=[\"'])",
    re.IGNORECASE,
)
"""An object that holds a secret, as `repr` and code show it."""
_STEMS_IN_TEXT = (
    "digest ",
    "login(",
    "sign_in(",
    "signin(",
    "-stdin",
    "sudo -s",
    "sig=",
    "code=",
    "basic ",
    "identified by",
)
_Q = r"""(?:\\{0,4}["']|\\{1,4}u002[27]|&(?:quot|apos|#3[49]);)"""
"""A quote: plain, escaped, or as JSON and HTML write one."""
_GIVEN = _compile(rf"""(?<![\w.+-])([\w.+-]++)((?:{_Q}|\\{{0,4}})\]?\s{{0,8}}(?:=>|:=|[:=])\s{{0,64}}+)""")
"""A name and its value: assignments, Hydra's `key=value`, headers, URL parameters, JSON, YAML."""
_TYPED = _compile(
    r"""(?<![\w.+-])([\w.+-]++)"""
    r"""(:\s{0,8}[A-Za-z][A-Za-z_.\[\]&?]{0,48}+(?: \| \w{1,32}+)?\s{0,8}=\s{0,8})(?=[bru]?["'`])"""
)
"""A name, its type and its value, as code has them."""
_OPTION = _compile(r"""(?<![\w-])--?([A-Za-z][\w.-]{0,128}+)(["',]{0,4}+(?:\s{1,8}+|(?<=,)(?=["'])))(?!["']?-)""")
"""A command-line option whose value is the next word."""
_PAIR = _compile(r"""(?<=[\[(])\s{0,8}[bru]?["']([\w.+-]{1,128}+)(["'],\s{0,8})(?=[bru]?["'])""")
"""A name and its value as the two elements of a tuple or list."""
_ENTRY = _compile(
    rf"""(?<![\w.-])(?:name|key|id|header|field|parameterkey){_Q}?\s{{0,8}}[:=]\s{{0,8}}(?:{_Q})?([\w.+-]{{1,128}}+)"""
    rf"""((?:{_Q})?(?:\s{{0,8}},)?\s{{0,64}}+(?:{_Q})?(?:value|content|parametervalue)(?:{_Q})?\s{{0,8}}[:=]\s{{0,8}}+)""",
    re.IGNORECASE,
)
"""A name and its value as two fields: the attributes of XML, the environment of a container."""
_ELEMENT = _compile(r"(<([\w.:-]{1,64}+)((?:\s[^<>]{0,256}+)?)>(?:<!\[CDATA\[)?)([^<]++)(?=<)")
_ATTRIBUTE = _compile(r"""\s(?:name|key|id)=["']([\w.:-]{1,128}+)["']""")
_NETRC = _compile(r"(\blogin\s{1,8}\S{1,256}+\s{1,8}password\s{1,8})\S+")
_QUOTE = _compile(rf"[bru]?({_Q})".replace("{0,4}", "{0,8}", 1))
_BLOCK = _compile(r"[|>][-+\d]{0,2}[ \t]{0,8}\r?\n([ \t]{1,64}+)")
"""The beginning of a block of lines in YAML."""
_TUPLE = _compile(r"""\((?=[^()\n"']{0,64}+["'])[^()\n]{0,512}+\)""")
"""A user and a password."""
_WORD = _compile(r"[^\s,;&\"'<>)}\]|\\]+")
_LINE = _compile(r"[^\r\n\"'\\]+")
_WHOLE_LINE = _compile(r"authorization|auth[-_]?header|cookie", re.IGNORECASE)
"""Headers whose values contain blanks and semicolons."""


def is_masked(value: str) -> bool:
    """Return whether a text is a mask in place of a secret."""
    return len(value) < 64 and _MASKED.fullmatch(value.strip()) is not None


def mask_text(text: str, depth: int = 2) -> str:
    """Copy a text with its secrets masked; a text without, as most are, is returned as it is after a fast test.

    The time is linear in the length. What is URL-encoded, `depth` times at most, is masked as well.
    """
    if len(text) < SHORTEST or (text.startswith("arn:") and _ARN.fullmatch(text) is not None):
        return text
    given, text = text, mask_shapes(text)
    if "-u" in text:
        text = _LOGIN_OPTION.sub(rf"\1{MASK}", text)
    if " login " in text:
        text = _LOGIN_COMMAND.sub(_mask_word, text)
    if any(option in text for option in _OPTIONS):
        text = _mask_short_options(text)
    if "=" in text or ":" in text or " " in text or "<" in text or "(" in text or "[" in text:
        lower = text.lower()
        if _has_stem(lower) or any(stem in lower for stem in _STEMS_IN_TEXT):
            text = _mask_named(text, lower)
    if depth and "%" in text:
        text = _ENCODED.sub(lambda found: _mask_encoded(found[0], depth - 1), text)
    return given if text == given else text


def mask_shapes(text: str) -> str:
    """Mask only what is a secret by its shape: keys of known services, private keys, credentials in addresses.

    For long texts that are data, such as those a model writes: what looks like the name of a secret is common in them.
    """
    if len(text) >= _LONG_WORD and _may_hold_key(text):
        text = _KEYS.sub(MASK, text)
    if "BEGIN " in text and "PRIVATE KEY" in text:
        text = _PEM.sub(rf"\1{MASK}", text)
    if "@" in text:
        text = _BARE_LOGIN.sub(_mask_login, _ODD_LOGIN.sub(_mask_login, _LOGIN.sub(_mask_login, text)))
        if ":thin:" in text:
            text = _ORACLE_LOGIN.sub(rf"\1{MASK}", text)
    if "://" in text:
        text = _HOOK.sub(rf"\1{MASK}", text)
    return text


def _may_hold_key(text: str) -> bool:
    encoded = text.encode("utf-8", "replace")
    if _LONG not in encoded.translate(_WITHOUT_LETTERS):
        return False
    if len(text) < _SHORT_TEXT:
        return True
    least = _LONG_WORD if text.isascii() else _SHORTEST_KEY
    words = b" ".join([word for word in encoded.translate(_ONLY_ASCII).split() if len(word) >= least])
    return any(beginning in words for beginning in _BEGINNINGS)


def _mask_login(found: "re.Match[str]") -> str:
    """Mask a login, unless its password is masked already."""
    name, _, password = found.group().partition(":")
    masked = is_masked(password) if password else is_masked(name) or not name
    return found.group() if masked else MASK


def _mask_word(found: "re.Match[str]") -> str:
    """Mask the second group, a word that has a digit and is not masked."""
    return found[1] + MASK if any(map(str.isdigit, found[2])) and not is_masked(found[2]) else found[0]


def _mask_short_options(text: str) -> str:
    """Mask the passwords of commands whose option for them is one letter."""
    parts: list[str] = []
    done, command, at = 0, "", 0
    for found in _COMMAND.finditer(text):
        if found["option"] is None:
            command, at = found.lastgroup or "", found.end()
            continue
        letter, apart = _SHORT_OPTIONS.get(command, ("", None))
        if found["value"] is None or found["option"] != letter or found.start() - at > _MAX_COMMAND:
            continue
        if apart is None or bool(found["gap"].strip("\"'") != found["gap"].strip()) is apart:
            parts += text[done : found.start("value")], MASK
            done = found.end("value")
    return "".join((*parts, text[done:])) if parts else text


_ENCODED = _compile(r"(?<![^\s\"'<>])[^\s%\"'<>]*+%(?=[0-9A-Fa-f]{2})[^\s\"'<>]++")
"""A word that is URL-encoded."""


_OCTET = _compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)


def _mask_encoded(word: str, depth: int) -> str:
    """Mask the secrets of an encoded word; the rest of it stays encoded as it was."""
    from urllib.parse import unquote

    decoded = unquote(word, "latin-1")
    safe = mask_text(decoded, depth)
    if safe is decoded:
        return word
    octets = _OCTET.findall(word)
    parts: list[str] = []
    end = 0
    for piece in safe.split(MASK):
        start = decoded.find(piece, end)
        if start < 0:
            return MASK
        end = start + len(piece)
        parts.append("".join(octets[start:end]))
    return MASK.join(parts)


def _mask_named(text: str, lower: str) -> str:
    """Mask what follows the name of a secret, in each of the ways to write that; `lower` is the text in lower case."""
    if "bearer" in lower or "basic" in lower:
        text = _SCHEME.sub(_mask_scheme, text)
    if " " in text:
        text = _SENTENCE.sub(_mask_sentence, text)
        if "password " in lower or "identified " in lower or "requirepass" in lower or "masterauth" in lower:
            text = _STATEMENT.sub(_mask_word, text)
    if "digest " in lower:
        text = _DIGEST.sub(rf"\1{MASK}", text)
    if "echo " in lower and "|" in text:
        text = _PIPED.sub(rf"\1{MASK}", text)
    if "('" in text or '("' in text or "(b" in text or "(key=" in text:
        text = _MADE.sub(_mask_word, text)
    if "?" in text or "&" in text:
        text = _QUERY.sub(rf"\1{MASK}", text)
    if "," in text and ("(" in text or "[" in text):
        text = _mask_values(text, _PAIR)
    if "=" in text or ":" in text:
        if "value" in lower or "content" in lower:
            text = _mask_values(text, _ENTRY)
        if ":" in text and "=" in text:
            text = _mask_values(text, _TYPED)
        text = _mask_values(text, _GIVEN)
    if "-" in text:
        text = _mask_values(text, _OPTION)
    if "</" in text:
        text = _ELEMENT.sub(_mask_element, text)
    return _NETRC.sub(rf"\1{MASK}", text) if "login" in text else text


def _mask_scheme(found: "re.Match[str]") -> str:
    """Mask the credentials in a header; a word of prose after `basic` or `bearer` stays."""
    word, gap, value = found.groups()
    if word.lower() == "basic":
        import base64

        try:
            proof = b":" in base64.b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4), "-_")
        except ValueError:
            proof = False
    else:
        proof = any(each.isdigit() for each in value) or len(value) >= 32
    return f"{word}{gap}{MASK}" if proof else found.group()


def _mask_sentence(found: "re.Match[str]") -> str:
    """Mask a word that mixes letters and digits; names of files and dates, with points and dashes, stay."""
    words = re.split(r"[.=/_-]", found[2])
    mixed = any(len(each) >= 12 and re.search(r"\d", each) and re.search(r"[A-Za-z]", each) for each in words)
    return found[1] + MASK if mixed else found.group()


def _mask_element(found: "re.Match[str]") -> str:
    start, name, attributes, value = found.groups()
    inside = _ATTRIBUTE.search(attributes) if attributes else None
    for each in (name, inside[1]) if inside is not None else (name,):
        if looks_secret(each) and _is_secret_value(each, value.strip()):
            return start + MASK
    return found.group()


def _mask_values(text: str, pattern: "re.Pattern[str]") -> str:
    parts: list[str] = []
    done = 0
    known: dict[str, bool] = {}
    for found in pattern.finditer(text):
        name = found[1].lstrip("-+")
        secret = known.get(name)
        if secret is None:
            secret = known[name] = looks_secret(name)
        if not secret or found.start() < done:
            continue
        start, end = _value_at(text, found.end(), name, found[2])
        if pattern is _PAIR and text[end + 1 : end + 2] not in (")", "]"):
            continue
        if end - start > _MAX_HARMLESS or (end > start and _is_secret_value(name, text[start:end].strip())):
            parts += text[done:start], MASK
            done = end
    return "".join((*parts, text[done:])) if parts else text


def _value_at(text: str, start: int, name: str, gap: str) -> tuple[int, int]:
    """Find where a value begins and ends: in quotes, in brackets, to the end of a block, of a line or of a word."""
    quote = _QUOTE.match(text, start)
    if quote is not None:
        return quote.end(), _closing_quote(text, quote.end(), quote[1])
    if text.startswith(MASK, start):
        return start, start
    if text[start : start + 1] in ("[", "{"):
        return start, _closing_bracket(text, start)
    pair = _TUPLE.match(text, start)
    if pair is not None:
        return start, pair.end()
    block = _BLOCK.match(text, start)
    if block is not None:
        return _block_end(text, block.end(), block[1])
    indent = gap.rpartition("\n")[2] if "\n" in gap else ""
    if indent and not indent.strip(" \t"):
        return _block_end(text, start, indent)
    found = (_LINE if _WHOLE_LINE.search(name) else _WORD).match(text, start)
    return start, found.end() if found is not None else start


def _block_end(text: str, start: int, indent: str) -> tuple[int, int]:
    """Find the end of the lines that begin with an indent, the first of which is at `start`."""
    if text.startswith(MASK, start):
        return start, start
    end = text.find("\n", start)
    while end >= 0 and text.startswith(indent, end + 1):
        end = text.find("\n", end + 1)
    return start, len(text) if end < 0 else end


def _closing_quote(text: str, start: int, quote: str) -> int:
    end = text.find(quote, start)
    while end > start and text[end - 1] == "\\" and (len(quote) == 1 or text[end - 2] == "\\"):
        end = text.find(quote, end + 1)
    return len(text) if end < 0 else end


_BRACKET = _compile(r"[\[{}\]]")


def _closing_bracket(text: str, start: int) -> int:
    depth = 0
    for found in _BRACKET.finditer(text, start):
        depth += 1 if found.group() in "[{" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _is_secret_value(name: str, value: str) -> bool:
    """Return whether a value is a secret: not empty, masked, a count, or code."""
    if not value or is_masked(value) or _PLACEHOLDER.fullmatch(value) is not None or _CALL.fullmatch(value) is not None:
        return False
    if _WEAK.fullmatch(name) is not None and _NUMBER.fullmatch(value) is not None:
        return False
    if name.lower() in ("pass", "auth") and _PROSE.fullmatch(value) is not None:
        return False
    return value.rpartition(".")[2] != name


_WORD = re.compile(r"\S{1,64}")
"""A word that may be a name."""


def key_text(key: Any) -> Any:
    """Decode a key of bytes, as servers give headers; any other is returned as it is."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, (bytes, bytearray)) else key


def hides(key: Any) -> bool:
    """Return whether a key of any type names a secret."""
    if type(key) is not str:
        key = key_text(key)
    return isinstance(key, str) and is_secret(key)


def masked(value: Any) -> Any:
    """Mask the value of a secret; one that is masked already, such as `****` or `REDACTED`, is left as it is."""
    if value is None or value is True or value is False or value == "":
        return value
    if isinstance(value, str) and is_masked(value):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) and is_masked(each) for each in value):
        return value
    return MASK


def mask_bytes(value: bytes) -> bytes:
    """Mask the secrets in bytes that are text."""
    text = value.decode("utf-8", "surrogateescape")
    safe = mask_text(text)
    return value if safe is text else safe.encode("utf-8", "surrogateescape")


def mask_list(values: Iterable[Any]) -> list[Any]:
    """Copy a list, masking each element that follows the name of a secret.

    That is the second of a pair, as lists of headers have them, and the value after an option, as in a command line.
    """
    found: list[Any] = []
    option = False
    for inner in values:
        if option and isinstance(inner, str) and not inner.startswith("-"):
            found.append(masked(inner))
        elif isinstance(inner, (list, tuple)) and len(inner) == 2 and _heads_secret(inner[0]):
            found.append((inner[0], masked(inner[1])))
        else:
            found.append(inner)
        option = isinstance(inner, str) and _is_option(inner)
    return found


def _is_option(word: str) -> bool:
    """Return whether a word of a command line is an option whose value, the next word, is a secret."""
    return word.startswith("-") and "=" not in word and ":" not in word and _heads_secret(word.lstrip("-"))


def _heads_secret(first: Any) -> bool:
    """The same for one word; not cached, because the first of a pair may be any text."""
    if not isinstance(first, (str, bytes, bytearray)):
        return False
    name = key_text(first[:LONGEST_NAME])
    return _WORD.fullmatch(name) is not None and looks_secret(name)


def safe_key(key: Any) -> Any:
    """Mask the secrets in a key that is a text, as where addresses are counted."""
    return mask_text(key) if isinstance(key, str) else mask_bytes(key) if isinstance(key, bytes) else key


LONGEST_NAMED = 256
"""Characters of a text of a sample in which the names of secrets are searched too."""


def mask_data(text: str) -> str:
    """Mask the secrets in a text that is data of a sample; in a long one, those that are known by their shape."""
    return mask_text(text) if len(text) <= LONGEST_NAMED else mask_shapes(text)


def redact(value: Any, mask: Callable[[str], str] = mask_text) -> Any:
    """Copy nested dicts and lists with every secret in them masked, those inside texts by `mask`."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {safe_key(key): masked(inner) if hides(key) else redact(inner, mask) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(inner, mask) for inner in mask_list(value)]
    return mask_bytes(value) if isinstance(value, bytes) else value
