"""The run that training code writes to: the current one, or a new one with the sinks that code asked for."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import stepscope
from stepscope.sdk import settings
from stepscope.sdk.context import text_of

Wanted = Mapping[str, Mapping[str, Any]]
"""Sinks by name, each with its options."""
_PROTOCOLS = {4317: "grpc", 4318: "http/protobuf"}
"""What is spoken at the ports that OTLP has for itself."""


def begin(wanted: Wanted, **arguments: Any) -> stepscope.Run:
    """Join the current run, or start one with these sinks beside those of the settings; ConfigError as `init`.

    A sink that is wanted here stands above one of the same name in the settings. A current run keeps its sinks: one
    that it lacks is named in a warning.
    """
    run = stepscope.current_run()
    if run is None:
        asked: Any = [*_settled(wanted), *({name: options} for name, options in wanted.items())]
        return stepscope.init(**arguments, sinks=asked or None)
    present = {each.name for each in run.settings.sinks}
    for name in wanted:
        if name not in present:
            run.outcomes.notice_text(
                f"the current run has no sink {name!r} and takes none while it runs; name it in `init(sinks=...)`"
            )
    return run


def begin_quietly(wanted: Wanted, **arguments: Any) -> stepscope.Run | None:
    """The same, for code that must go on whatever happens: without a sink that is wrong, or with no run at all."""
    problems: list[str] = []
    for sinks, more in ((wanted, arguments), ({}, arguments), ({}, {})):
        try:
            run = begin(sinks, **more)
        except stepscope.ConfigError as error:
            problems.append(str(error))
            continue
        for problem in problems:
            if hasattr(run, "outcomes"):
                run.outcomes.notice_text(f"recording goes on without it: {problem}")
        return run
    logging.getLogger("stepscope").warning("nothing is recorded: %s", problems[-1])
    return None


def otlp(endpoint: Any, otherwise: str | None = None) -> Wanted:
    """The OTLP sink for an endpoint: what is spoken at its port, and `otherwise` at a port that is not OTLP's own.

    None leaves that to OTLP's variables. The path of traces, if somebody copied it, is no part of the address.
    """
    address = text_of(endpoint).rstrip("/").removesuffix("/v1/traces")
    try:
        port = urlsplit(address).port
    except ValueError:  # the sink says what is wrong with it
        port = None
    protocol = _PROTOCOLS.get(port or 0, otherwise)
    return {"otlp": {"endpoint": address} if protocol is None else {"endpoint": address, "protocol": protocol}}


def _settled(wanted: Wanted) -> Sequence[Any]:
    """The sinks that variables and the settings file name, without those that are replaced."""
    return [each for each in settings.load({}).sinks if each.name not in wanted]
