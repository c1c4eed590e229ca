"""Settings of a run: arguments, STEPSCOPE_* variables, stepscope.yaml, OTEL_* variables, defaults; first wins."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.journal.layout import is_safe
from stepscope.model import run_description
from stepscope.model.errors import ConfigError
from stepscope.model.ports import run_id_problem
from stepscope.model.records import FIRST_STEP, LAST_STEP

if TYPE_CHECKING:
    from stepscope.sinks.registry import Chosen

FILE = "stepscope.yaml"
MIB = 1024 * 1024
SHIPPERS = ("process", "thread", "none")
MAX_SECONDS = 86_400
"""The longest interval or timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set; each field is also an argument of `init` and a key of stepscope.yaml."""

    project: str = "default"
    """The project this run belongs to."""
    name: str | None = None
    """A name for people; need not be unique."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Tags by name: a list such as `[baseline, team=red]`, or a mapping; a plain tag is True."""
    notes: str | None = None
    """What the run is for."""
    group: str | None = None
    """The group of runs it belongs to, such as a sweep or a cross-validation."""
    job_type: str | None = None
    """Its role in the group, such as train or eval."""
    parent: str | None = None
    """The run that this one was forked from or continues, by its id; a run object is taken too."""
    from_step: int | None = None
    """The step of the parent at which this run begins."""
    run_id: str | None = None
    """The run to write to; the same id again is a new attempt. Default: the launcher's job id, else a fresh one."""
    home: Path = field(default_factory=lambda: default_home())
    """The folder that holds all journals."""
    disabled: bool = False
    """Make every call a no-op."""
    quiet: bool | None = None
    """Do not print the run id, nor at the end that a shipper goes on; by default the id is printed at a terminal."""
    flush_interval: float = 0.1
    """Seconds between writes of what was recorded."""
    exit_timeout: float = 5.0
    """The longest `finish`, and so the end of the process, may take, in seconds."""
    memory_quota: int = 64 * MIB
    """Memory for records that are not written yet, in bytes."""
    disk_quota: int = 4096 * MIB
    """Size of the journal of one process, in bytes."""
    probes: bool = True
    """Read CPU, memory, disk, network and GPU every `probe_interval` seconds."""
    probe_interval: float = 5.0
    """Seconds between two readings of the probes."""
    overhead_budget: float = 0.005
    """The share of the time that Stepscope may take from training; optional work is left out to stay below it."""
    diagnosis: bool | None = None
    """Diagnose the records of this process as they are written, an alert for each finding; default: with `on_alert`."""
    capture_logs: bool = True
    """Record what goes through Python's logging, from `log_level` up."""
    capture_code: bool = False
    """Record the uncommitted changes of the working tree, as git has them: rank 0, once, secrets masked."""
    log_level: str = "INFO"
    """The lowest logging level that is recorded."""
    console: bool | None = None
    """Record what this process and its children print; default: for processes that a launcher started."""
    otel: bool = True
    """Register as the OpenTelemetry provider of this process, unless it already has one."""
    sigterm: bool = False
    """End the run as preempted on SIGTERM, then do what SIGTERM did before."""
    service_name: str | None = None
    """The OpenTelemetry service.name; default: the project."""
    resource_attributes: Mapping[str, str] = field(default_factory=dict)
    """OpenTelemetry resource attributes of every record."""
    sinks: "tuple[Chosen, ...]" = ()
    """Where records are delivered besides the journal, such as `[console, {hub: {endpoint: ...}}]`."""
    shipper: str = "process"
    """What delivers to remote sinks: a separate `process`, a `thread` of this one, or `none` (`stepscope ship`)."""


def default_home() -> Path:
    """Return the default home folder; in the temporary folder for a user without a home."""
    try:
        return Path.home() / ".stepscope"
    except RuntimeError:
        pass
    try:
        return Path.cwd() / ".stepscope"
    except OSError:
        import tempfile

        return Path(tempfile.gettempdir()) / ".stepscope"


KNOWN = tuple(entry.name for entry in dataclasses.fields(Settings))


def load(
    arguments: Mapping[str, Any],
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Merge all sources; ConfigError names what is wrong, the known names and the fix."""
    env = os.environ if env is None else env
    merged: dict[str, Any] = {}
    for source, values in (
        ("OTEL_* variables", _from_otel(env)),
        (str(_file(env, folder or Path())), _from_file(env, folder or Path())),
        ("STEPSCOPE_* variables", {key: env[name] for key in KNOWN if env.get(name := variable(key))}),
        ("init", {key: value for key, value in arguments.items() if value is not None}),
    ):
        for key, value in values.items():
            if key not in ("name", "notes", "group", "job_type", "parent") or value not in (
                None,
                "",
            ):  # empty: not given
                checked = _checked(key, value, source)
                # As OpenTelemetry merges resources: the attributes of all sources, the later ones first.
                merged[key] = {**merged.get(key, {}), **checked} if key == "resource_attributes" else checked
    merged["sinks"] = _sinks(merged.get("sinks"), env)
    return Settings(**merged)


def is_off(env: Mapping[str, str]) -> bool:
    """Return whether the environment disables Stepscope; then no other setting is read or checked."""
    try:
        return _as_bool(env.get(variable("disabled")) or False)
    except ValueError:
        return False


def _sinks(given: Any, env: Mapping[str, str]) -> "tuple[Chosen, ...]":
    if not given and not (env.get("STEPSCOPE_DEBUG") or env.get("TUFT_OTEL_DEBUG")):
        return ()
    from stepscope.sinks import registry  # a tenth of init's time, for those who want it

    return registry.with_debug(registry.parse(given or [], env), env)


def variable(key: str) -> str:
    """The environment variable of a setting."""
    return f"STEPSCOPE_{key.upper()}"


def misspelt(env: Mapping[str, str]) -> list[str]:
    """Return a warning for each STEPSCOPE_* variable that looks like a misspelt setting.

    It is not an error because the variable may belong to another version or program.
    """
    names = [variable(key) for key in KNOWN]
    unknown = [name for name in env if name.startswith("STEPSCOPE_") and name not in names]
    if not unknown:
        return []
    import difflib

    near = {name: difflib.get_close_matches(name, names, n=1, cutoff=0.87) for name in unknown}
    return [f"{name} is not a setting and is ignored; did you mean {like[0]}?" for name, like in near.items() if like]


def _from_otel(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        found["disabled"] = True
    if env.get("OTEL_RESOURCE_ATTRIBUTES"):
        found["resource_attributes"] = env["OTEL_RESOURCE_ATTRIBUTES"]
    if env.get("OTEL_SERVICE_NAME"):
        found["service_name"] = env["OTEL_SERVICE_NAME"]
    return found


def _file(env: Mapping[str, str], folder: Path) -> Path:
    named = env.get("STEPSCOPE_CONFIG")
    return Path(named) if named else folder / FILE


def _from_file(env: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Read the `telemetry:` part of stepscope.yaml in the working folder, or of STEPSCOPE_CONFIG."""
    path = _file(env, folder)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if env.get("STEPSCOPE_CONFIG"):
            raise ConfigError(f"STEPSCOPE_CONFIG names {path}, which does not exist") from None
        return {}
    except (OSError, ValueError) as error:  # the latter: it is not UTF-8
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        import yaml

        from stepscope.wire import yaml_text
    except ImportError:
        raise ConfigError(f"{path} needs PyYAML to be read: pip install 'stepscope[yaml]'") from None
    try:
        content = yaml_text.load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if not isinstance(content, dict) or (content and "telemetry" not in content):
        found = f", found {', '.join(map(str, content))}" if isinstance(content, dict) else ""
        raise ConfigError(f"{path}: expected the settings under the key `telemetry:`{found}")
    section = content.get("telemetry") or {}
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: expected a mapping under the key `telemetry:`")
    section = {str(key): value for key, value in section.items()}
    if "enabled" in section:
        try:
            section["disabled"] = not _as_bool(section.pop("enabled"))
        except ValueError as error:
            raise ConfigError(f"{path}: enabled is not valid: {error}") from None
    return _with_endpoint(section, env)


def _with_endpoint(section: dict[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Send records to the `otlp_endpoint` of a service's own settings, or of its variable, unless it is debugged."""
    named = section.pop("otlp_endpoint", None)
    endpoint = named or ("disabled" in section and env.get("TUFT_OTLP_ENDPOINT"))
    if not endpoint or env.get("TUFT_OTEL_DEBUG") == "1":  # then the console is the only one
        return section
    given = section.get("sinks") or []
    listed = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    protocol = "http/protobuf" if str(endpoint).rstrip("/").endswith(":4318") else "grpc"
    return {**section, "sinks": [*listed, {"otlp": {"endpoint": str(endpoint), "protocol": protocol}}]}


def _checked(key: str, value: Any, source: str) -> Any:
    if key not in KNOWN:
        import difflib

        near = difflib.get_close_matches(key, KNOWN, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{source}: unknown setting {key!r}{hint or '.'} Known: {', '.join(KNOWN)}")
    parse: Callable[[Any], Any] = _PARSERS.get(key, _as_text)
    try:
        return parse(value)
    except (TypeError, ValueError, OverflowError, RuntimeError, OSError) as error:  # the last two: no home, no folder
        raise ConfigError(f"{source}: {key}={value!r} is not valid: {error}") from None


def _as_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected a non-empty string")
    value.encode()  # a lone surrogate cannot be encoded
    return value


def _as_tags(value: Any) -> dict[str, Any]:
    tags = run_description.read_tags(value)
    if len(tags) > run_description.MAX_TAGS:
        raise ValueError(f"expected {run_description.MAX_TAGS} tags at most")
    return tags


def _as_run_id(value: Any) -> str:
    value = str(value) if type(value) is int else value  # as YAML has it
    if not isinstance(value, str) or not is_safe(value):
        raise ValueError("use 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit")
    return value


def _as_parent(value: Any) -> str:
    value = getattr(value, "id", value)
    value = str(value) if type(value) is int else value
    if not isinstance(value, str) or (problem := run_id_problem(value)):
        raise ValueError("expected the id of a run" if not isinstance(value, str) else problem)
    return _as_text(value)


def _as_step(value: Any) -> int:
    number = int(value) if isinstance(value, str) else value
    if type(number) is not int or not FIRST_STEP <= number <= LAST_STEP:
        raise ValueError("expected a step, which is an integer")
    return number


def _as_path(value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not str(value) or "\0" in str(value):
        raise ValueError("expected a path")
    return Path(value).expanduser().absolute()


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in (*_YES, *_NO):
        raise ValueError("expected true or false")
    return word in _YES


_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def _as_number(low: float, high: float, what: str) -> Callable[[Any], float]:
    """Return a parser of numbers in a range."""

    def parse(value: Any) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan  # which is in no range
        if not low <= number <= high:
            raise ValueError(f"expected {what}")
        return number

    return parse


_positive = _as_number(math.ulp(0.0), MAX_SECONDS, f"a number of seconds above 0, {MAX_SECONDS} at most")


def _as_bytes(value: Any) -> int:
    """Read a size: a number of bytes, or a string such as 500MB or 2GiB."""
    units = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1024, "MIB": MIB, "GIB": 1024 * MIB}
    text = str(value).strip()
    digits = text.rstrip("BKMGIbkmgi ")
    unit = text[len(digits) :].strip().upper()
    try:
        size = int(float(digits) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise ValueError("expected a number of bytes, or a size such as 500MB or 2GiB") from None
    if size < 64 * 1024:
        raise ValueError("expected at least 64KiB")
    return size


def level_of(value: Any) -> str | None:
    """Return the logging level of a number or of a level name of any common logger; None if unknown.

    Of a filter such as `info,hyper=warn` the default level is used. `OFF` records no line.
    """
    if value is False:  # how YAML reads off
        return "OFF"
    for part in str(value).split(","):
        word = part.strip().lstrip(":").upper()
        if word.isascii() and word.isdecimal():
            return str(min(int(word[:9]), 1 << 30))
        known = next((level for level, words in _LEVELS.items() if word in words), None)
        if known is not None:
            return known
    return None


def _as_level(value: Any) -> str:
    found = level_of(value)
    if found is None:
        raise ValueError("expected DEBUG, INFO, WARNING, ERROR, CRITICAL, or TRACE for everything, OFF for nothing")
    return found


_LEVELS = {
    "NOTSET": ("NOTSET", "TRACE", "ALL", "VERBOSE", "FINEST", "FINER", "SILLY", "SPAM"),
    "DEBUG": ("DEBUG", "DBG", "FINE", "CONFIG"),
    "INFO": ("INFO", "INFORMATION", "INFORMATIONAL", "NOTICE", "SUCCESS", "HTTP", "DEFAULT"),
    "WARNING": ("WARNING", "WARN"),
    "ERROR": ("ERROR", "ERR", "SEVERE"),
    "CRITICAL": ("CRITICAL", "CRIT", "FATAL", "ALERT", "EMERGENCY", "EMERG", "PANIC", "FAULT"),
    "OFF": ("OFF", "NONE", "SILENT", "QUIET", "DISABLED"),
}
"""Levels and the words for them, as Rust, Elixir, Java, JavaScript, Go, syslog and Python have them."""


def _as_shipper(value: Any) -> str:
    if value not in SHIPPERS:
        raise ValueError(f"expected one of {', '.join(SHIPPERS)}")
    return str(value)


def _as_attributes(value: Any) -> dict[str, str]:
    """Read resource attributes: a mapping, or OTel's `key=value,key=value` with %-escapes."""
    if isinstance(value, Mapping):
        return {str(key): str(inner) for key, inner in value.items()}
    pairs = [pair.partition("=") for pair in str(value).split(",") if pair.strip()]
    if any(not separator or not key.strip() for key, separator, _ in pairs):
        raise ValueError("expected key=value pairs separated by commas")
    from urllib.parse import unquote

    return {key.strip(): unquote(inner.strip()) for key, _, inner in pairs}


_PARSERS: dict[str, Callable[[Any], Any]] = {
    **{each.name: _as_bool for each in dataclasses.fields(Settings) if each.type in (bool, bool | None)},
    "tags": _as_tags,
    "parent": _as_parent,
    "from_step": _as_step,
    "run_id": _as_run_id,
    "home": _as_path,
    "flush_interval": _positive,
    "exit_timeout": _as_number(0, MAX_SECONDS, f"a number of seconds, 0 to {MAX_SECONDS}"),
    "memory_quota": _as_bytes,
    "disk_quota": _as_bytes,
    "probe_interval": _positive,
    "overhead_budget": _as_number(0, 1, "a share between 0 and 1, such as 0.005 for 0.5 %"),
    "log_level": _as_level,
    "resource_attributes": _as_attributes,
    "sinks": lambda given: given,  # checked by the registry of sinks
    "shipper": _as_shipper,
}
