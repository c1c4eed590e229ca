"""Where DogStatsD may listen: addresses, other machines only when allowed, files left behind."""

import socket
from pathlib import Path

import pytest

from stepscope.dialects.datadog.listener.sockets import (
    Address,
    check_remote,
    close_socket,
    open_sockets,
    udp_address,
    unix_address,
)
from stepscope.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", Address("udp", "127.0.0.1", 9000)),
        ("localhost", Address("udp", "localhost", 8125)),
        (":9000", Address("udp", "127.0.0.1", 9000)),
        ("[::1]:9000", Address("udp", "::1", 9000)),
        ("udp://127.0.0.1:9000", Address("udp", "127.0.0.1", 9000)),
    ],
)
def test_udp_addresses(text: str, address: Address) -> None:
    """A host, a port, or both."""
    assert udp_address(text) == address


@pytest.mark.parametrize("text", ["127.0.0.1:x", "127.0.0.1:99999", "unix:///a", "a:1/b"])
def test_what_is_no_udp_address(text: str) -> None:
    """The error says how it is written."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        udp_address(text)


def test_unix_addresses() -> None:
    """A path alone is for datagrams."""
    assert unix_address("/a/b") == unix_address("unix:///a/b") == Address("unix", path="/a/b")
    assert unix_address("unixstream:///a/b") == Address("unixstream", path="/a/b")
    for text in ("", "unixstream://", "tcp:///a"):
        with pytest.raises(ValueError, match="is not a socket"):
            unix_address(text)


def test_other_machines_need_to_be_allowed() -> None:
    """DogStatsD has no tokens, so only loopback is bound unless explicitly allowed."""
    with pytest.raises(ConfigError, match="--dogstatsd-remote"):
        check_remote([udp_address("0.0.0.0:0")], allowed=False)
    check_remote([udp_address("0.0.0.0:0")], allowed=True)
    check_remote([udp_address("localhost:0"), udp_address("[::1]:0"), unix_address("/a")], allowed=False)


def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    """The file of a process that died is no obstacle; that of one that lives, and any other file, is."""
    path = tmp_path / "d.sock"
    address = unix_address(str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(path))
    (opened,) = open_sockets([address])
    assert path.stat().st_mode & 0o777 == 0o660
    with pytest.raises(ConfigError, match=r"d\.sock"):
        open_sockets([address])
    close_socket(opened)
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(ConfigError, match=r"d\.sock"):
        open_sockets([address])
    assert path.read_text() == "precious"
