"""Errors of a database are classified by what the caller can do."""

import pytest

from stepscope.hub.store.engine import Damaged, EngineError, refusal
from stepscope.hub.store.store import _why


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (40, "Checksum doesn't match: corrupted data"),
        (271, "Cannot decompress"),
        (33, "Cannot read all data: While reading or decompressing /x/data.bin"),
        (107, "File /x/data.bin doesn't exist: While reading or decompressing /x/data.bin"),
    ],
)
def test_damage(code: int, text: str) -> None:
    """Says what to do, does not pass, and keeps what the database said."""
    error = refusal(text, code)
    assert isinstance(error, Damaged)
    assert (error.cause, error.passing, error.full) == (text, False, False)
    assert "`stepscope store check`" in str(error)


@pytest.mark.parametrize(("code", "text"), [(32, "Attempt to read after eof: Cannot parse Int32"), (60, "no table")])
def test_a_wrong_user_query_is_not_reported_as_damage(code: int, text: str) -> None:
    """A text that is too short to be a number is not a file that is."""
    assert not isinstance(refusal(text, code), Damaged)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EngineError("Cannot reserve 1.00 MiB, not enough space", 243), "is full: free some"),
        (EngineError("write: errno: 28, No space left on device", 75), "is full: free some"),
        (EngineError("filesystem error: [Permission denied]", 1001), "fix the permissions"),
        (EngineError("open: errno: 30, strerror: Read-only file system", 76), "fix the permissions"),
        (EngineError("memory limit exceeded", 241), "too little memory"),
        (EngineError("Syntax error", 62), "damaged or of another kind"),
        (Damaged("Checksum doesn't match", 40), "damaged or of another kind (Checksum doesn't match)"),
    ],
)
def test_why_a_store_is_not_opened(error: EngineError, said: str, tmp_path: object) -> None:
    """Only a damaged store is reported as damaged."""
    why = _why(tmp_path, error)  # type: ignore[arg-type]
    assert said in why
    assert str(tmp_path) in why
