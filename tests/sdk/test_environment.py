"""What a run remembers of its start: no secret of the command line."""

import pytest

from stepscope.model.redaction import redact


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["-H", "Authorization: Bearer X"], ["-H", "Authorization: [redacted]"]),
        (["-HAuthorization: Bearer X", "next"], ["-HAuthorization: [redacted]", "next"]),
        (["--header=Authorization:X"], ["--header=Authorization:[redacted]"]),
        (["--header", "X-Auth=X"], ["--header", "X-Auth=[redacted]"]),
        (["--headers", '{"a": 1, "api_key": "X"}'], ["--headers", '{"a": 1, "api_key": "[redacted]"}']),
        (["--url=https://h/p?lr=1&token=X"], ["--url=https://h/p?lr=1&token=[redacted]"]),
        (["--db", "postgres://me:X@h:5432/d"], ["--db", "postgres://[redacted]@h:5432/d"]),
        (["--api-key", "X", "--lr", "3"], ["--api-key", "[redacted]", "--lr", "3"]),
    ],
)
def test_secrets_of_the_command_line(given: list[str], shown: list[str]) -> None:
    """Options, headers, JSON and addresses keep their names and lose their secrets."""
    assert redact(given) == shown


def test_the_rest_of_the_command_line() -> None:
    """What is no secret stays as it is, and so does what comes after it."""
    given = [
        "train.py",
        "--lr=3",
        "--data=s3://my-secret-bucket/a",
        "8",
        "--eos_token=<s>",
        "at=12:30",
        "--pad-token",
        "x",
    ]
    assert redact(given) == given


def test_an_endless_argument() -> None:
    """One of any length is looked through once, not once for each of its characters."""
    given = ["a" * 1_000_000, "a " * 100_000]
    assert redact(given) == given
