"""Masking inside texts: no planted secret is readable, and what only looks like one stays."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.model.redaction import mask_text, redact
from tests.model.secret_corpus import INNOCENT, Planted, planted


@pytest.mark.parametrize("each", list(planted()), ids=lambda each: f"{each.key}={each.text[:40]}")
def test_a_planted_secret_is_masked(each: Planted) -> None:
    """Addresses, headers, options, JSON, PEM blocks, keys of services; masking again changes nothing."""
    safe = redact({each.key: each.text, "list": [each.text], "bytes": each.text.encode()})
    assert each.key != "note" or each.secret not in str(safe)
    assert each.secret not in str(safe[each.key])
    assert redact(safe) == safe


@pytest.mark.parametrize("text", INNOCENT)
def test_an_innocent_text_is_unchanged(text: str) -> None:
    """Hashes, counts of tokens, addresses without credentials, masks, code and prose stay as they are."""
    assert mask_text(text) is text


@given(st.text(alphabet="pasword=:@/-tkens'\"{}[](),|<>\\ .?&%23D1A\n", max_size=200))
def test_masking_twice_changes_nothing(text: str) -> None:
    """Masking a masked text again does not change it."""
    once = mask_text(text)
    assert mask_text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "://:",
        "password=",
        "password='",
        "token: [",
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "sk-a",
        "--token ",
        "<token>",
        "login a password ",
        "@a:",
        "://a.hooks.",
        "\\",
        'password=\\"',
        "password:{",
        "bearer ",
        "?key=",
        "a:bcd",
        "-u a:",
        "mysql -p",
        "mysql a ",
        "token is a1",
        "token a1b2c3d4e5f6a7b8.",
        "redis-cli -a ",
    ],
)
def test_the_time_grows_with_the_length(piece: str) -> None:
    """Four times the text takes about four times as long: no text can hold up a recorder or a hub."""

    def seconds(length: int) -> float:
        text = piece * (length // len(piece))
        began = time.process_time()
        mask_text(text)
        return time.process_time() - began

    most = max(8 * min(seconds(16_000) for _ in range(3)), 0.05)
    assert any(seconds(64_000) < most for _ in range(3))
