"""Redaction: values under keys that name secrets are masked, counts of tokens are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model import redaction
from stepscope.model.redaction import MASK, is_secret, redact

SECRETS = """
api_key apiKey API-KEY openai.api_key x-api-key private_key sessionKey Authorization auth bearer credentials
password passwd db_password passphrase secret client_secret aws_secret_access_key cookie Set-Cookie
token access_token accessToken refresh-token id_token csrf_token HF_TOKEN GITHUB_TOKEN wandb_token headers/token
sessionid PHPSESSID JSESSIONID otp recovery_codes RABBITMQ_DEFAULT_PASS client-key-data
pass db_pass dbPass PGPASS smtp/pass jwt session.jwt ssh_key sshKey signing_key encryption_key account_keys github_pat
dsn SENTRY_DSN database_dsn connection_string connectionString AZURE_STORAGE_CONNECTION_STRING conn_str slack_webhook
slack_webhook_url webhookUrl service_account_json serviceAccountKey sas_url DD_APP_KEY STRIPE_KEY MY_KEY
routing_key ROUTING_KEY storage_key storageKey blob_key kms_key kmsKey creds aws_creds db.creds cred gcp-creds totp_seed
totpSeed otp_seed mfa_seed wallet_seed seed_words seed_phrase recovery_phrase backup_phrase verification_code auth_code
access_code device_code one_time_code 2fa_code mfa_code login_code unlock_code pairing_code code_verifier
client_assertion saml_response saml_assertion psk wpa_psk wifi/psk pre_shared_key preshared_key hmac webhook_hmac cvv
pw bind_pw db_pw ldap.pw admin_pw pswd user_pswd passkey keytab krb5_keytab key_material key_pem privkey priv_key
id_rsa id_ed25519 dockerconfigjson docker_cfg npmrc pypirc csrf xsrf host_key server_key client_key tls_cert_key ca_key
unseal_key unseal_keys wrapping_key identity_key write_key sdk_key instrumentation_key activation_key merchant_key
payment_key wireguard_key wg_key bot_key tinker_key TINKER_API_KEY tml_key modal_key voyage_key new_relic_key
newrelic_key honeycomb_key posthog_key pushover_key bot_tokens vault_tokens kerberos_ticket auth_ticket
Passwort kennwort contraseña пароль 密码 senha SECRET secretKey app_secret oauth.secret
mytoken authtoken backend_token hf_tokens hfTokens X-Auth x_auth basic_auth X-Auth-Key x-amz-security-token
"""
HARMLESS = """
s3_key gcs_key requires_auth
tokens max_tokens num_tokens tokens_per_second prompt_tokens tokenizer token_count pad_token_id
eos_token bos_token pad-token unkToken mask_token image_token next_token stop.token tokenizer/eos_token
loss lr author authored keyboard key step monkey batch_size
special_token new_token drop_token prev_token num_token max_token per_token loss_per_token time_per_output_token
n_tokens total_tokens cache_read_tokens user_tokens valid_tokens
session session_id sessionId sessions assess hotpath pin_memory code barcode FORWARD_PASS NUM_PASS
bypass pass_rate pass@1 pass_k pass_at_1 compass forward_pass backward_pass first_pass low_pass eval/pass num_passes
webhook_timeout webhooks_sent connection connections connected service_account_name CACHE_KEY RNG_KEY KEY_DIM sas_loss
keys num_keys numKeys n_keys cache_key cacheKey partition_key foreign_key group_key hash_key lookup_key dict_key
key_size key_padding_mask key_value keypoints hotkey turkey donkey query_key product_key user_key customer_key
metric_key kms_key_id key_id key_path exit_code status_code error_code language_code code_version country_code opcode
seed data_seed random_seed torch_seed sampler_seed seeds sacred accreditation creds_loaded incredible pw_conv conv_pw
conv/pw dw_pw_conv spw hmac_algorithm ticket tickets ticket_count phrase phrases paraphrase paraphrase_score rephrase
passkeys_enabled passes n_pass bypass_rate tokens_seen token_ids token_type_ids tokenized num_tokens_seen/total
input_tokens output_tokens cached_tokens reasoning_tokens total_token_count token_budget tokens_left tok tok/s
timecode timestamp barcode_reader unicode encode decode source_code host server client key_tabulation hosts
primary_key sort_key key_dim query.key public_key path pat pattern attn_pattern compat dispatch jwt_algorithm oauth
"""


@pytest.mark.parametrize("key", SECRETS.split())
def test_a_key_that_names_a_secret_is_known(key: str) -> None:
    """Secret names are recognised in any case, with any separator, with or without a prefix."""
    assert is_secret(key)


@pytest.mark.parametrize("key", HARMLESS.split())
def test_a_key_that_only_sounds_like_one_is_not(key: str) -> None:
    """What training code counts in tokens stays readable."""
    assert not is_secret(key)


def test_nested_secrets_are_masked_and_the_rest_is_copied() -> None:
    """Dicts in lists in dicts are followed; what is given is not changed."""
    given_value = {"a": [{"password": "x", "n": 1}, ("b", {"token": 2})], "cookie": {"any": "thing"}, 3: {"secret": 4}}
    masked = redact(given_value)
    assert masked == {"a": [{"password": MASK, "n": 1}, ["b", {"token": MASK}]], "cookie": MASK, 3: {"secret": MASK}}
    assert given_value["cookie"] == {"any": "thing"}


def test_pairs_and_keys_of_bytes() -> None:
    """Headers come as lists of pairs, and as bytes; a name keeps its type."""
    given_value = {"h": [("Authorization", "x"), (b"x-auth-token", b"x"), ("a", 1), ("b", 2, 3)], b"cookie": b"x"}
    assert redact(given_value) == {
        "h": [["Authorization", MASK], [b"x-auth-token", MASK], ["a", 1], ["b", 2, 3]],
        b"cookie": MASK,
    }


def test_a_pair_of_texts_is_no_header() -> None:
    """Sentences, long words, numbers and lists may come first in a pair; two words alone are no pair in a list."""
    given_value = [["what is the secret", 1], ["secret" * 100, 2], [3, "token"], [["token"], 4], ["pass", "fail", "x"]]
    assert redact(given_value) == given_value
    assert redact(["token", "loss"]) == ["token", "loss"]


@given(st.text())
def test_the_answer_is_the_same_when_it_is_remembered(key: str) -> None:
    """Any text may be a key, and asking twice changes nothing."""
    assert is_secret(key) is is_secret(key)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without end do not fill the memory, and are still judged."""
    monkeypatch.setattr(redaction, "_memo", {})  # of the whole process, and filled by other tests
    monkeypatch.setattr(redaction, "_MEMO_LIMIT", 10)
    assert not any(is_secret(f"key_{number}") for number in range(100))
    assert len(redaction._memo) == 10
    assert is_secret("password_99")


def test_what_is_remembered_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither endless keys nor the texts in pairs are kept; an endless key is judged by its end all the same."""
    monkeypatch.setattr(redaction, "_memo", {})  # as above
    assert is_secret("x" * 1000 + "_token")
    assert not is_secret("x" * 1000 + "_eos_token")
    assert redact([["token", "x"]]) == [["token", MASK]]
    assert redaction._memo == {}


@pytest.mark.parametrize(
    "value", ["****", "REDACTED", "[REDACTED]", "<redacted>", "?", "xxxx", "sk-***abcd", "", None, True]
)
def test_masking_is_idempotent(value: object) -> None:
    """An already masked or missing value is not masked again."""
    assert redact({"password": value, "headers": [("authorization", value)]}) == {
        "password": value,
        "headers": [["authorization", value]],
    }
    assert redact({"http.request.header.authorization": ["[REDACTED]"]}) == {
        "http.request.header.authorization": ["[REDACTED]"]
    }


def test_the_value_of_an_option_in_a_list() -> None:
    """A command line in a config loses the value of a secret option, and nothing else."""
    assert redact({"argv": ["t.py", "--token", "x", "--lr", "3", "--password=x", "y"]}) == {
        "argv": ["t.py", "--token", MASK, "--lr", "3", f"--password={MASK}", "y"]
    }


def test_the_name_of_a_secret_in_a_cloud_is_none() -> None:
    """What names a resource stays; what it holds does not."""
    arn = "arn:aws:secretsmanager:us-west-2:1:secret:a-b"
    assert redact({"aws.secretsmanager.secret.arn": arn, "aws.secret": "x"}) == {
        "aws.secretsmanager.secret.arn": arn,
        "aws.secret": MASK,
    }
