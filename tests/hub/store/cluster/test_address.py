"""The address of a ClickHouse store is read strictly, and its password stays out of every text."""

import pytest

from stepscope.hub.store.cluster.address import Address, is_address, parse
from stepscope.model.errors import ConfigError

SECRET = "p%40ss%3Aword"


def test_everything_in_an_address_is_read() -> None:
    """User, password, hosts with one port for all, database, cluster and limits."""
    found = parse(f"clickhouse://me:{SECRET}@a,b:9100,[::1],c:9200/runs?cluster=main&timeout=7&memory=1000&threads=2")
    assert found.hosts == (("a", 9200), ("b", 9100), ("::1", 9200), ("c", 9200))
    assert (found.user, found.password, found.database, found.cluster) == ("me", "p@ss:word", "runs", "main")
    assert (found.timeout, found.memory, found.threads, found.secure) == (7.0, 1000, 2, False)


def test_what_is_left_out_has_a_default() -> None:
    """The usual port of the scheme, the user `default`, the database `stepscope`."""
    assert parse("clickhouse://a").hosts == (("a", 9000),)
    assert parse("clickhouses://a,b") == Address((("a", 9440), ("b", 9440)), secure=True)
    assert (parse("clickhouse://a").database, parse("clickhouse://a").user) == ("stepscope", "default")


def test_the_password_is_in_no_text() -> None:
    """Passwords are neither in a printed address nor in errors about one."""
    found = parse(f"clickhouse://me:{SECRET}@a:9000/runs?cluster=main")
    assert str(found) == "clickhouse://me@a:9000/runs?cluster=main"
    assert "p@ss" not in repr(found)
    for rest in ("@a b/runs", "@a:99999/runs", "@a/ru-ns", "@a/runs?x=1", "@a/runs?timeout=soon", "@a/runs#x", "@"):
        with pytest.raises(ConfigError) as refused:
            parse(f"clickhouse://me:{SECRET}{rest}")
        assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clickhouse://", "must name its hosts"),
        ("clickhouse://a,,b", "must name its hosts"),
        ("http://a:8123", "must look like clickhouse://"),
        ("clickhouse://a:0", "between 1 and 65535"),
        ("clickhouse://a/b;drop", "letters, digits and underscores"),
        ("clickhouse://a?cluster=x'y", "letters, digits and underscores"),
        ("clickhouse://a?clutser=x", "no option 'clutser'"),
        ("clickhouse://a?timeout=-1", "the option timeout"),
        ("clickhouse://a?verify=no", "the option verify"),
        ("clickhouse://[::1", "cannot be read"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(text: str, said: str) -> None:
    """A misspelt option or a name that could end a statement is refused."""
    with pytest.raises(ConfigError, match=said):
        parse(text)


def test_a_folder_is_no_address() -> None:
    """Only our URL schemes are addresses."""
    assert [is_address(text) for text in ("clickhouse://a", "clickhouses://a", "/data", "http://a")] == [
        *(True, True, False, False)
    ]
