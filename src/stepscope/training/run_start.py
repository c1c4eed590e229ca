"""Join the current run, or start one with the requested sinks."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import stepscope
from stepscope.extend import SETTINGS, describe_error, load_settings, safe_run_id, setting, text_of

Sinks = Mapping[str, Mapping[str, Any]]
"""Sinks by name, each with its options."""
_PROTOCOLS = {4317: "grpc", 4318: "http/protobuf"}
"""The protocols of OTLP's standard ports."""


def join_or_start(requested: Sinks, arguments: Mapping[str, Any]) -> stepscope.Run:
    """Join the current run, or start one with these sinks and the arguments of `init`; ConfigError as from `init`.

    The argument `sinks` replaces the setting, as in `init`. A requested sink overrides one of the same name in the
    settings, unless the argument has options for it. A current run keeps its sinks; a warning names missing ones.
    """
    _check_names(arguments)
    run = stepscope.current_run()
    if run is not None:
        return _join(run, requested)
    sinks = _requested_sinks(requested, arguments.get("sinks"))
    return stepscope.init(**{**arguments, "sinks": sinks or None})


def join_or_start_safely(requested: Sinks, arguments: Mapping[str, Any]) -> stepscope.Run | None:
    """The same without exceptions: invalid settings are ignored with a warning; None when no run can start.

    Each setting is checked separately. An invalid `run_id` is replaced by a valid one.
    """
    notices: list[str] = []
    arguments = _with_safe_id(arguments, notices)
    try:
        run = join_or_start(requested, arguments)
    except stepscope.ConfigError:
        try:
            run = join_or_start(*_only_valid(requested, arguments, notices))
        except stepscope.ConfigError as error:
            logging.getLogger("stepscope").warning("nothing is recorded: %s", error)
            return None
    for notice in notices:
        run.warn(notice)
    return run


def otlp(endpoint: Any, default_protocol: str | None = None) -> Sinks:
    """The OTLP sink for an endpoint: the protocol of its port if that is a standard one, else `default_protocol`.

    None leaves the choice to OTLP's variables. A trailing `/v1/traces` is removed.
    """
    address = text_of(endpoint).rstrip("/").removesuffix("/v1/traces")
    try:
        port = urlsplit(address).port
    except ValueError:  # the sink reports what is wrong with it
        port = None
    protocol = _PROTOCOLS.get(port or 0, default_protocol)
    return {"otlp": {"endpoint": address} if protocol is None else {"endpoint": address, "protocol": protocol}}


def _join(run: stepscope.Run, requested: Sinks) -> stepscope.Run:
    present = {each.name for each in setting(run, "sinks") or ()}
    for name in requested:
        if name not in present:
            run.warn(f"the current run has no sink {name!r}, and none can be added now: name it in `init(sinks=...)`")
    return run


def _requested_sinks(requested: Sinks, given: Any) -> list[Any]:
    """All sinks: those of the argument or else the settings, and those requested; options by precedence."""
    listed = list(load_settings({}).sinks) if given is None else _listed(given)
    with_options = {_name(each) for each in listed if isinstance(each, Mapping)}
    return [
        *(each for each in listed if isinstance(each, Mapping) or _name(each) not in requested),
        *({name: options} for name, options in requested.items() if name not in with_options),
    ]


def _listed(given: Any) -> list[Any]:
    """The items of the argument `sinks`; `init` reports invalid ones."""
    if isinstance(given, str):
        is_json = given.lstrip().startswith("[")
        return list(load_settings({"sinks": given}).sinks) if is_json else given.split(",")
    try:
        return [given] if isinstance(given, Mapping) or not isinstance(given, Iterable) else list(given)
    except Exception as error:  # a user's iterator raised
        raise stepscope.ConfigError(f"sinks: cannot be read: {describe_error(error)}") from None


def _name(sink: Any) -> str:
    """The name of a sink, however it was given."""
    name = next(iter(sink), "") if isinstance(sink, Mapping) else getattr(sink, "name", sink)
    return text_of(name).strip().lower()


def _check_names(arguments: Mapping[str, Any]) -> None:
    """ConfigError for an argument that `init` does not have."""
    unknown = [key for key in arguments if key not in SETTINGS and key != "config"]
    if unknown:
        load_settings(dict.fromkeys(unknown, ""))


def _only_valid(requested: Sinks, arguments: Mapping[str, Any], notices: list[str]) -> tuple[Sinks, dict[str, Any]]:
    """The valid sinks and arguments, each checked separately; a notice for each of the others."""
    load_settings({})  # raise now if the settings of the process are wrong, not the arguments

    def is_valid(key: str, value: Any) -> bool:
        try:
            _check_names({key: value})
            if key != "config":
                load_settings({key: value})
            elif not isinstance(value, Mapping):
                raise stepscope.ConfigError(f"init: config must be a dict, got {type(value).__name__}")
        except stepscope.ConfigError as error:
            notices.append(f"recording continues without it: {error}")
            return False
        return True

    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        sinks: Any = _listed(given.pop("sinks", ()))
    except stepscope.ConfigError as error:
        notices.append(f"recording continues without it: {error}")
        sinks = []
    valid = {key: value for key, value in given.items() if is_valid(key, value)}
    valid["sinks"] = [each for each in sinks if is_valid("sinks", [each])] or None
    return {name: options for name, options in requested.items() if is_valid("sinks", [{name: options}])}, valid


def _with_safe_id(arguments: Mapping[str, Any], notices: list[str]) -> Mapping[str, Any]:
    """The arguments with a valid run id; a replaced id becomes the run's name, unless it has one."""
    given = arguments.get("run_id")
    text = "" if given is None else text_of(given)
    made = safe_run_id(text) if text else ""
    if made == text:
        return {**arguments, "run_id": text or given}
    notices.append(f"run_id {text[:100]!r} cannot be the name of a folder; the run is {made}")
    return {"name": text.encode("utf-8", "replace").decode()[:200], **arguments, "run_id": made}
