"""The run that training code writes to: the current one, or a new one with the requested sinks."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import stepscope
from stepscope.extend import SETTINGS, describe_error, load_settings, safe_run_id, setting, text_of

Wanted = Mapping[str, Mapping[str, Any]]
"""Sinks by name, each with its options."""
_PROTOCOLS = {4317: "grpc", 4318: "http/protobuf"}
"""The protocols of OTLP's standard ports."""


def begin(wanted: Wanted, arguments: Mapping[str, Any]) -> stepscope.Run:
    """Join the current run, or start one with these sinks and the arguments of `init`; ConfigError as from there.

    The argument `sinks` takes the place of those in the settings, as in `init`. A sink that is wanted here overrides
    one of the same name in the settings, unless the argument has options for it. A current run keeps its
    sinks: one that it lacks is named in a warning.
    """
    _check_names(arguments)
    run = stepscope.current_run()
    if run is not None:
        return _join(run, wanted)
    sinks = _requested_sinks(wanted, arguments.get("sinks"))
    return stepscope.init(**{**arguments, "sinks": sinks or None})


def begin_quietly(wanted: Wanted, arguments: Mapping[str, Any]) -> stepscope.Run | None:
    """The same, for code that must not fail: wrong settings are left out, or there is no run at all.

    What is wrong is left out by itself and named in a warning; a `run_id` that cannot be one is made safe.
    """
    notices: list[str] = []
    arguments = _with_safe_id(arguments, notices)
    try:
        run = begin(wanted, arguments)
    except stepscope.ConfigError:
        try:
            run = begin(*_right(wanted, arguments, notices))
        except stepscope.ConfigError as error:
            logging.getLogger("stepscope").warning("nothing is recorded: %s", error)
            return None
    for notice in notices:
        run.warn(notice)
    return run


def otlp(endpoint: Any, otherwise: str | None = None) -> Wanted:
    """The OTLP sink for an endpoint: what is spoken at its port, and `otherwise` at a port that is not OTLP's own.

    None leaves that to OTLP's variables. A path of traces in the address is removed.
    """
    address = text_of(endpoint).rstrip("/").removesuffix("/v1/traces")
    try:
        port = urlsplit(address).port
    except ValueError:  # the sink reports what is wrong with it
        port = None
    protocol = _PROTOCOLS.get(port or 0, otherwise)
    return {"otlp": {"endpoint": address} if protocol is None else {"endpoint": address, "protocol": protocol}}


def _join(run: stepscope.Run, wanted: Wanted) -> stepscope.Run:
    present = {each.name for each in setting(run, "sinks") or ()}
    for name in wanted:
        if name not in present:
            run.warn(f"the current run has no sink {name!r}, and none can be added now: name it in `init(sinks=...)`")
    return run


def _requested_sinks(wanted: Wanted, given: Any) -> list[Any]:
    """All sinks: those given, else those of the settings, and those requested; options by precedence."""
    listed = list(load_settings({}).sinks) if given is None else _listed(given)
    with_options = {_name(each) for each in listed if isinstance(each, Mapping)}
    return [
        *(each for each in listed if isinstance(each, Mapping) or _name(each) not in wanted),
        *({name: options} for name, options in wanted.items() if name not in with_options),
    ]


def _listed(given: Any) -> list[Any]:
    """The argument `sinks` one by one; `init` reports what is wrong with one."""
    if isinstance(given, str):
        is_json = given.lstrip().startswith("[")
        return list(load_settings({"sinks": given}).sinks) if is_json else given.split(",")
    try:
        return [given] if isinstance(given, Mapping) or not isinstance(given, Iterable) else list(given)
    except Exception as error:  # whatever a foreign iterator raises
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


def _right(wanted: Wanted, arguments: Mapping[str, Any], notices: list[str]) -> tuple[Wanted, dict[str, Any]]:
    """The valid sinks and arguments, each checked separately; a notice for each of the others."""
    load_settings({})  # raise now if the settings of the process are wrong, not the arguments

    def is_right(key: str, value: Any) -> bool:
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
    good = {key: value for key, value in given.items() if is_right(key, value)}
    good["sinks"] = [each for each in sinks if is_right("sinks", [each])] or None
    return {name: options for name, options in wanted.items() if is_right("sinks", [{name: options}])}, good


def _with_safe_id(arguments: Mapping[str, Any], notices: list[str]) -> Mapping[str, Any]:
    """The arguments with an id that the run can have; what it was is the run's name, unless it has one."""
    given = arguments.get("run_id")
    text = "" if given is None else text_of(given)
    made = safe_run_id(text) if text else ""
    if made == text:
        return {**arguments, "run_id": text or given}
    notices.append(f"run_id {text[:100]!r} cannot be the name of a folder; the run is {made}")
    return {"name": text.encode("utf-8", "replace").decode()[:200], **arguments, "run_id": made}
