"""Texts with secrets planted in them, of many shapes, and texts that only look as if they had one."""

import base64
import random
import string
from collections.abc import Iterator
from typing import NamedTuple

_ALNUM = string.ascii_letters + string.digits


class Planted(NamedTuple):
    """A secret, the text that holds it, and the key under which that text is given."""

    secret: str
    text: str
    key: str = "note"


ADDRESSES = [
    "postgres://bob:{}@db.internal:5432/train",
    "postgresql+psycopg2://bob:{}@db/train",
    "mysql://root:{}@10.0.0.3/x",
    "mongodb+srv://u:{}@cluster0.mongodb.net/?w=majority",
    "redis://:{}@cache:6379/0",
    "rediss://default:{}@cache:6380",
    "amqp://guest:{}@mq:5672/vhost",
    "https://bob:{}@git.internal/repo.git",
    "ftp://bob:{}@files/x",
    "clickhouse://default:{}@ch:9000",
    "s3://AKID:{}@minio:9000/bucket",
    "https://{}@github.com/org/repo.git",
    "jdbc:postgresql://h/db?user=u&password={}",
    "https://h/v1?api_key={}",
    "https://h/v1?a=1&access_token={}&b=2",
    "https://h/x?token={}#top",
    "wss://h/s?auth_token={}",
    "https://acct.blob.core.windows.net/c?sv=2024&sig={}",
    "https://h/f?code={}",
    "https://maps.googleapis.com/x?key={}",
    "https://b.s3.amazonaws.com/o?X-Amz-Credential=a&X-Amz-Signature={}",
    "bob:{}@tcp(127.0.0.1:3306)/db",
    "bob:{}@localhost/db",
    "bob:{}@db.internal:5432/train",
    "snowflake://u:{}@acct/db",
]
HOOKS = [
    "https://hooks.slack.com/services/T01ABCDEF/B01ABCDEF/{}",
    "https://hooks.slack.com/workflows/T01/A01/123456/{}",
    "https://discord.com/api/webhooks/112233445566778899/{}",
    "https://discordapp.com/api/v10/webhooks/112233445566/{}",
    "https://acme.webhook.office.com/webhookb2/1234-5678@90/IncomingWebhook/{}",
    "https://outlook.office.com/webhook/1234/{}",
    "https://hooks.zapier.com/hooks/catch/123456/{}",
    "https://chat.internal/hooks/1{}",
    "https://api.telegram.org/bot12345678:{}/send",
]
NAMED = [
    "password={}",
    "passwd={}",
    "PASSWORD={}",
    "db_password={}",
    "DB_PASS={}",
    "pwd={}",
    "secret={}",
    "client_secret={}",
    "CLIENT_SECRET={}",
    "api_key={}",
    "apikey={}",
    "API_KEY={}",
    "OPENAI_API_KEY={}",
    "WANDB_API_KEY={}",
    "HF_TOKEN={}",
    "GITHUB_TOKEN={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "AWS_SESSION_TOKEN={}",
    "AZURE_CLIENT_SECRET={}",
    "STRIPE_KEY={}",
    "MY_KEY={}",
    "SIGNING_KEY={}",
    "token={}",
    "access_token={}",
    "refresh_token={}",
    "auth_token={}",
    "private_key={}",
    "passphrase={}",
    "session_key={}",
    "bearer={}",
    "credentials={}",
    "jwt={}",
    "SENTRY_DSN={}",
    "connection_string={}",
    "hydra.db.password={}",
    "+trainer.api_key={}",
    "--password={}",
    "--token={}",
    "--api-key={}",
    "--hf-token={}",
    "-Dsecret={}",
    "export|NEPTUNE_API_TOKEN={}",
    "RABBITMQ_DEFAULT_PASS={}",
    "otp={}",
    "recovery_code={}",
    "security_answer={}",
    "PHPSESSID={}",
    "client-key-data: {}",
    "COMET_API_KEY='{}'",
    'DD_APP_KEY="{}"',
]
SPOKEN = [
    "Authorization: Bearer {}",
    "authorization: Token {}",
    "Proxy-Authorization: Digest response={}",
    "X-Api-Key: {}",
    "x-auth-token: {}",
    "Cookie: theme=dark; session={}",
    "Set-Cookie: sid={}; Path=/; HttpOnly",
    "curl -H 'Authorization: Bearer {}' https://h",
    "curl -u bob:{} https://h",
    "mysql --user bob --password {} train",
    "python train.py --lr 3 --token {} --seed 1",
    "train.py --api-key '{}'",
    "['train.py', '--wandb-token', '{}']",
    "retrying with Bearer {} in 3 s",
    "login failed: password: {}",
    "password: '{}'",
    'password = "{}"',
    "client_secret: {}\nhost: h",
    '{{"password": "{}"}}',
    '{{"a": {{"api_key": "{}", "b": 1}}}}',
    "{{'token': '{}'}}",
    '{{\\"secret\\": \\"{}\\"}}',
    '{{"credentials": {{"user": "bob", "value": "{}"}}}}',
    '{{"cookies": ["{}"]}}',
    "Client(api_key='{}', retries=3)",
    "config['db']['password'] = '{}'",
    "Server=h;Database=d;User Id=u;Password={};Encrypt=true",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey={}",
    "host=h dbname=d user=u password={}",
    "machine h login bob password {}",
    "mysql -uroot -p{} train",
    "mysqldump -h db -p{} train > dump",
    "docker login -u bob -p {} registry",
    "sshpass -p {} ssh h",
    "redis-cli -h h -a {} ping",
    "scp bob:{}@host:/x .",
    "the password is {}",
    "Invalid token '{}'",
    "invalid api key: {}",
    "Incorrect API key provided: {}. You can find yours on the page",
    "login failed for bob with password {}",
    "retrying, using token {}",
    "token {} expired",
    "<password>{}</password>",
    "password => {}",
    "env: A=1 B_SECRET={} C=2",
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\\n{}\\n-----END RSA PRIVATE KEY-----\\n",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}",
    '{{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"}}',
]
KEYS = [
    "dsn",
    "database_dsn",
    "SENTRY_DSN",
    "connection_string",
    "connectionString",
    "conn_str",
    "slack_webhook",
    "slack_webhook_url",
    "webhookUrl",
    "service_account_json",
    "serviceAccountKey",
    "password",
    "api_key",
    "token",
    "auth_token",
    "cookie",
    "Authorization",
    "client_secret",
    "private_key",
    "db.password",
    "hf_token",
    "wandb_api_key",
    "MY_KEY",
    "app_key",
    "sas_url",
]
"""Keys whose whole value is a secret, whatever it looks like."""
SHAPES = {
    "sk-proj-": 40, "sk-ant-api03-": 40, "sk-": 32, "ghp_": 36, "gho_": 36, "ghs_": 36, "github_pat_": 40, "glpat-": 20,
    "hf_": 34, "AIza": 35, "ya29.": 40, "GOCSPX-": 28, "xoxb-": 40, "xoxp-": 40, "xapp-1-": 40, "npm_": 36, "pypi-": 60,
    "gsk_": 40, "nvapi-": 50, "r8_": 37, "lsv2_pt_": 40, "sk_live_": 24, "rk_live_": 24, "whsec_": 32, "hvs.": 30,
    "shpat_": 32, "lin_api_": 32, "tskey-auth-": 30, "glsa_": 32, "dckr_pat_": 27, "pplx-": 40, "xai-": 60, "pcsk_": 50,
    "wandb_v1_": 40, "figd_": 40, "tvly-": 30,
}  # fmt: skip
INNOCENT = [
    "token 128000 of 256000", "token checkpoint-0001234.safetensors is missing",
    "the password is required", "docker run -p 8080:80 x",
    "session_id=2025-01-01_abc", "mkdir -p runs/2025", "cp -a runs/1 runs/2", "mysql is at port 3306 -p",
    "3f786850e387550fdab836ed7e6dc881de23001b", "sha256:" + "ab12" * 16, "d41d8cd98f00b204e9800998ecf8427e",
    "123e4567-e89b-12d3-a456-426614174000", "commit 3f786850e387550fdab836ed7e6dc881de23001b on main",
    "max_tokens=512", "num_tokens: 4096", "tokens: 1000", "prompt_tokens=3 completion_tokens=5", "tokenizer=gpt2",
    "tokenizer: meta-llama/Llama-3.1-8B", "eos_token='</s>'", "pad_token: <pad>", "pad_token_id=0", "token: 5 of 10",
    "next token=42", "tokens_per_second=1200.5", "key_dim=64", "n_kv_heads=8 key_dim=64", "sort_key=step",
    "key: loss", "primary_key: id", "query.key: value", "pass: 5 fail: 0", "forward pass: loss=3",
    "backward_pass=0.3", "auth: off", "https://example.com/a/b?c=d&e=f#g", "https://host:8080/users/@me",
    "http://127.0.0.1:4318/v1/traces", "ssh://git@github.com/org/repo.git", "git@github.com:org/repo.git",
    "mailto:bob@example.com", "bob@example.com", "repo/image:1.2@sha256:" + "cd34" * 16,
    "s3://bucket/run/ckpt-1000.pt", "file:///data/train/part-0001.parquet", "****", "REDACTED", "[REDACTED]",
    "password=****", "password: REDACTED", "token=[redacted]", "api_key=<hidden>",
    "https://REDACTED:REDACTED@h/x?sig=REDACTED", "SET ? ?", "SELECT * FROM t WHERE password = ?", "secret=None",
    "password=${DB_PASSWORD}", "token=$TOKEN", "api_key=os.environ['API_KEY']", "token=token",
    "password=get_password()", "api_key=settings.api_key", "cuda:0", "step 5: loss=0.31 lr=3e-4",
    "12:30:05 INFO epoch 3", "a=1, b=2", "x: y", "File \"/x/train.py\", line 3, in step", "KeyError: 'loss'",
    "ValueError: bad keys: ['a', 'b']", "skip-connection", "task-2024-11-05-long-name-of-an-experiment",
    "hf_dataset_name", "desk-lamp", "basic information about bearer bonds", "path=/home/u/data pattern=*.pt",
    "torch.compile(mode='max-autotune')", "train/loss", "AC/DC", "SKU-1234", "eyes", "key-value store",
    "keyboard: us", "monkey=banana", "author: Bob", "cookies eaten: 3", "compass=north",
]  # fmt: skip


def planted(seed: int = 7) -> Iterator[Planted]:
    """Yield texts, each with a secret of its own; the same each time."""
    chance = random.Random(seed)

    def secret(length: int = 24) -> str:
        return "".join(chance.choices(_ALNUM, k=length - 1)) + "7"

    for form in (*ADDRESSES, *HOOKS, *NAMED, *SPOKEN):
        made = secret()
        yield Planted(made, form.format(made).replace("|", " "))
    for key in KEYS:
        made = secret()
        yield Planted(made, made, key)
    for beginning, length in SHAPES.items():
        made = beginning + secret(length)
        for text in (made, f"using {made}, retrying", f"x={made}"):
            yield Planted(made, text)
    made = "AKIA" + "".join(chance.choices(string.ascii_uppercase + string.digits, k=16))
    yield Planted(made, f"credentials of {made}")
    token = ".".join(_encoded(part) for part in ('{"alg":"HS256"}', f'{{"sub":"{secret()}"}}', secret(32)))
    yield from (Planted(token, text) for text in (token, f"jwt {token}", f"?t={token}&x=1"))
    login = _encoded(f"bob:{secret()}")
    yield Planted(login, f"Basic {login}")


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
