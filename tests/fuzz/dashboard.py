"""Dashboards: YAML from a request."""

from collections.abc import Iterator

from stepscope.hub.dashboards.dashboard import BUILTIN, Mistake, builtin, parse


def check(data: bytes) -> None:
    """Read a dashboard."""
    line = 1
    try:
        parse(data.decode("utf-8", "replace"))
    except Mistake as error:
        line = error.line
        str(error).encode("utf-8", "replace")
    assert line > 0


def seeds() -> Iterator[bytes]:
    """Those that come with the hub, and what YAML can nest."""
    for name in BUILTIN:
        yield builtin(name).encode()
    yield b"title: a\ncharts: [{keys: [a, b], bands: [{from: 1, to: 2}]}]"
    yield b"? - {a: [b]}\n: - c"
    yield b"&a [*a, 0x1F, 1:2:3, 2024-01-01, !!binary YQ==, 'q', \"\\u0041\", |\n text]"
