"""Sources of settings, and the errors for invalid ones."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.errors import ConfigError
from stepscope.sdk import settings


def load(
    tmp_path: Path, yaml: str | None = None, env: dict[str, str] | None = None, **arguments: Any
) -> settings.Settings:
    """Load settings as if started in `tmp_path`."""
    if yaml is not None:
        (tmp_path / "stepscope.yaml").write_text(yaml)
    return settings.load(arguments, env or {}, tmp_path)


def test_first_source_wins(tmp_path: Path) -> None:
    """Arguments beat variables, variables the file, the file OTel's variables, those the defaults."""
    yaml = "telemetry: {project: file, service_name: file, name: file}"
    env = {"STEPSCOPE_PROJECT": "env", "STEPSCOPE_NAME": "env", "OTEL_SERVICE_NAME": "otel"}
    found = load(tmp_path, yaml, env, project="argument")
    assert (found.project, found.name, found.service_name) == ("argument", "env", "file")
    assert load(tmp_path / "x", None, {"OTEL_SERVICE_NAME": "otel"}).service_name == "otel"
    assert load(tmp_path / "x").project == "default"


def test_init_offers_every_setting() -> None:
    """Each setting is an argument of init, and each argument a setting but for those that only code can give."""
    only_code = {"config", "alerts", "on_alert", "unknown"}
    assert set(inspect.signature(stepscope.init).parameters) == {*settings.KNOWN, *only_code}
    with pytest.raises(ConfigError, match=r"unknown setting 'projct'; did you mean 'project'\?.*home"):
        stepscope.init(projct="x")


@pytest.mark.parametrize("key", settings.KNOWN)
def test_every_setting_is_documented(key: str) -> None:
    """Each setting and its variable stand in the settings page."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    assert f"`{key}`" in page
    assert f"`{settings.variable(key)}`" in page


def test_unknown_names_are_named_with_the_known_ones(tmp_path: Path) -> None:
    """A misspelt setting is refused, with a guess and the list."""
    with pytest.raises(ConfigError, match=r"unknown setting 'projct'; did you mean 'project'\?.*home"):
        load(tmp_path, "telemetry: {projct: x}")


@pytest.mark.parametrize("text", ["telemtry: {project: x}", "project: x"])
def test_a_file_without_its_key_is_refused(tmp_path: Path, text: str) -> None:
    """Ignored settings are an error; an empty file or section is not."""
    with pytest.raises(ConfigError, match=f"under the key `telemetry:`, found {text.partition(':')[0]}"):
        load(tmp_path, text)
    assert load(tmp_path, "telemetry:").project == "default"
    assert load(tmp_path, "").project == "default"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("memory_quota", "many", "500MB"),
        ("memory_quota", 10, "64KiB"),
        ("flush_interval", "0", "above 0"),
        ("flush_interval", True, "above 0"),
        ("flush_interval", "abc", "above 0"),
        ("exit_timeout", "nan", "seconds"),
        ("probes", "perhaps", "true or false"),
        ("run_id", "../x", "letters"),
        ("project", "", "non-empty"),
        ("log_level", "LOUD", "DEBUG"),
        ("resource_attributes", "novalue", "key=value"),
        ("shipper", "pigeon", "process, thread, none"),
    ],
)
def test_bad_values_say_what_is_expected(tmp_path: Path, key: str, value: Any, words: str) -> None:
    """A wrong value names its source, its key and what would be right."""
    with pytest.raises(ConfigError, match=f"init: {key}=.*{words}"):
        load(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("word", "level"),
    [
        ("warn", "WARNING"),
        ("trace", "NOTSET"),
        ("off", "OFF"),
        (False, "OFF"),
        ("Info", "INFO"),
        (":notice", "INFO"),
        ("emergency", "CRITICAL"),
        ("SEVERE", "ERROR"),
        ("fine", "DEBUG"),
        ("silent", "OFF"),
        ("info,hyper=warn,tower=off", "INFO"),
        ("my_crate=debug,warn", "WARNING"),
        (15, "15"),
        ("25", "25"),
    ],
)
def test_levels_of_other_languages(tmp_path: Path, word: Any, level: str) -> None:
    """The words of the loggers of Rust, Elixir, Java, JavaScript and syslog are understood."""
    assert load(tmp_path, log_level=word).log_level == level


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("2GiB", 2 * 1024**3), ("1.5 MiB", 1572864), (100_000, 100_000)],
)
def test_sizes_have_units(tmp_path: Path, text: Any, size: int) -> None:
    """Sizes are bytes, or numbers with the usual units."""
    assert load(tmp_path, disk_quota=text).disk_quota == size


def test_a_run_id_may_be_digits(tmp_path: Path) -> None:
    """YAML reads them as a number."""
    assert load(tmp_path, "telemetry: {run_id: 12345}").run_id == "12345"


def test_sinks_are_read_from_every_source(tmp_path: Path) -> None:
    """A list in the file and in init, a text in the variable; OTel's variables are asked with the same environment."""
    found = load(tmp_path, "telemetry: {sinks: [local, console, {hub: {url: 'http://h:1'}}]}").sinks
    assert [each.name for each in found] == ["console", "hub"]
    env = {"STEPSCOPE_SINKS": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:1"}
    assert "http://c:1/v1/logs" in load(tmp_path, env=env).sinks[0].config.place
    with pytest.raises(ConfigError, match="unknown sink"):
        load(tmp_path, sinks=["nowhere"])


def test_resource_attributes_follow_otel(tmp_path: Path) -> None:
    """OTEL_RESOURCE_ATTRIBUTES is read with its escapes."""
    found = load(tmp_path, env={"OTEL_RESOURCE_ATTRIBUTES": "team=a%20b,deployment.environment=prod"})
    assert found.resource_attributes == {"team": "a b", "deployment.environment": "prod"}


def test_resource_attributes_of_all_sources_are_merged(tmp_path: Path) -> None:
    """As OpenTelemetry merges resources: all attributes are kept, and of equal ones that of the stronger source."""
    env = {"OTEL_RESOURCE_ATTRIBUTES": "team=otel,a=1", "STEPSCOPE_RESOURCE_ATTRIBUTES": "team=ours,b=2"}
    file = "telemetry: {resource_attributes: {team: file, c: '3'}}"
    found = load(tmp_path, file, env=env, resource_attributes={"team": "init", "d": "4"})
    assert found.resource_attributes == {"team": "init", "a": "1", "b": "2", "c": "3", "d": "4"}
    assert load(tmp_path, file, env=env).resource_attributes["team"] == "ours"


def test_the_file_of_another_place(tmp_path: Path) -> None:
    """STEPSCOPE_CONFIG names the file, and a missing one is an error."""
    other = tmp_path / "other.yaml"
    other.write_text("telemetry: {enabled: false}")
    assert load(tmp_path, env={"STEPSCOPE_CONFIG": str(other)}).disabled
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path, env={"STEPSCOPE_CONFIG": str(tmp_path / "none")})


@pytest.mark.parametrize("text", ["telemetry: [1]", "[1]", "a: b: c"])
def test_a_file_of_the_wrong_shape(tmp_path: Path, text: str) -> None:
    """A file that is no mapping, or no YAML, is refused by name."""
    with pytest.raises(ConfigError, match=r"stepscope\.yaml"):
        load(tmp_path, text)


def test_disabled_by_otel(tmp_path: Path) -> None:
    """OTEL_SDK_DISABLED=true disables Stepscope too, unless configured otherwise."""
    assert load(tmp_path, env={"OTEL_SDK_DISABLED": "true"}).disabled
    assert not load(tmp_path, env={"OTEL_SDK_DISABLED": "true", "STEPSCOPE_DISABLED": "0"}).disabled


def test_a_misspelt_variable_is_named_with_the_one_it_looks_like() -> None:
    """A variable of another program, or of another part of Stepscope, is left alone."""
    env = {"STEPSCOPE_PROJCT": "gpt", "STEPSCOPE_HUB_TOKEN": "x", "STEPSCOPE_RANK": "0", "STEPSCOPE_HOME": "/x"}
    hint = "STEPSCOPE_PROJCT is not a setting and is ignored; did you mean STEPSCOPE_PROJECT?"
    assert settings.misspelt(env) == [hint]
    others = "CONFIG CONSOLE_DEBUG HUB HUB_URL LOCAL_RANK METRIC_LABELS STORE TOKEN WORLD_SIZE TEST_LONG TRACEPARENT"
    assert settings.misspelt({f"STEPSCOPE_{name}": "x" for name in others.split()}) == []


def test_a_misspelt_variable_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run still starts."""
    monkeypatch.setenv("STEPSCOPE_SINK", "console")
    with stepscope.init(home=tmp_path, probes=False) as run:
        run.log({"loss": 0.5})
    assert [line.message for line in caplog.records if "STEPSCOPE_SINK" in line.message] == [
        "stepscope: STEPSCOPE_SINK is not a setting and is ignored; did you mean STEPSCOPE_SINKS?"
    ]
