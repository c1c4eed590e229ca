"""Options and variables of the MLflow sink, their errors, and the doctor's report on a server."""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.dialects.mlflow.sink import Mlflow
from stepscope.dialects.mlflow.sink.tracking_server import Options
from stepscope.model.errors import ConfigError
from stepscope.sinks import registry
from tests.conftest import PACKAGE
from tests.dialects.mlflow.server_peer import Deed, Gate

PAGE = Path(__file__).parents[4] / "src" / "stepscope" / "dialects" / "mlflow" / "README.md"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Something that answers as the test sets it, with no MLflow behind it."""
    made = Gate()
    yield made
    made.close()


def test_variables_and_options() -> None:
    """MLflow's own variables are understood; options stand above them."""
    env = {
        "MLFLOW_TRACKING_URI": "https://mlflow.example/team/",
        "MLFLOW_EXPERIMENT_NAME": "123",
        "MLFLOW_TRACKING_USERNAME": "ada",
        "MLFLOW_TRACKING_PASSWORD": "secret",
        "MLFLOW_TRACKING_TOKEN": "unused",
        "MLFLOW_TRACKING_INSECURE_TLS": "true",
    }
    target = Mlflow.read({}, env).target
    assert (target.uri, target.experiment, target.known_as) == ("https://mlflow.example/team", "123", "name")
    assert target.authorization == "Basic YWRhOnNlY3JldA=="
    assert target.tls.verify is False
    other = Mlflow.read({"uri": "http://a:1", "experiment": 7}, {"MLFLOW_TRACKING_TOKEN": "t"}).target
    assert (other.uri, other.experiment, other.known_as) == ("http://a:1", "7", None)
    assert other.authorization == "Bearer t"
    assert Mlflow.read({}, {"MLFLOW_EXPERIMENT_ID": "7"}).target.known_as == "id"


def test_addresses() -> None:
    """A path of the API that was copied along is cut off; credentials leave the address."""
    assert Mlflow.read({"uri": "http://a:1/x/v1/traces"}, {}).target.uri == "http://a:1/x"
    assert Mlflow.read({"uri": "http://a:1/api/2.0/mlflow/"}, {}).target.uri == "http://a:1"
    (runs, traces) = registry.parse([{"mlflow": {"uri": "http://ada:secret@a:1"}}], {})
    assert runs.config.target.authorization == "Basic YWRhOnNlY3JldA=="
    assert "secret" not in repr((runs, traces))
    assert runs.id != traces.id


def test_parts() -> None:
    """Runs and traces have cursors of their own; traces can be left out; a file keeps what was chosen."""
    (runs, traces) = registry.parse(["mlflow"], {})
    assert [each.config.part for each in (runs, traces)] == ["runs", "traces"]
    for each in (runs, traces):
        assert msgspec.json.decode(msgspec.json.encode(each.config), type=Mlflow) == each.config
    assert len(registry.parse([{"mlflow": {"traces": False}}], {})) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"uri": "sqlite:///mlflow.db"}, "mlflow server --backend-store-uri"),
        ({"uri": "databricks"}, "not a tracking server"),
        ({"uri": "http://ada:secret@a:0"}, "not a tracking server"),
        ({"experment": "x"}, "did you mean 'experiment'"),
        ({"timeout": 0}, "seconds above 0"),
        ({"certificate": "/nowhere.pem"}, "/nowhere.pem does not exist"),
    ],
)
def test_wrong_ones_name_the_fix(options: dict[str, Any], words: str) -> None:
    """Errors for invalid options name the fix and contain no secrets."""
    with pytest.raises(ConfigError, match=words) as caught:
        Mlflow.read(options, {})
    assert "secret" not in str(caught.value)


def test_every_option_is_on_the_page() -> None:
    """Every option is documented with its variable."""
    page = PAGE.read_text()
    for name in Options.__struct_fields__:
        assert f"`{name}`" in page, name


def doctor(home: Path, uri: str, **options: Any) -> tuple[int, list[str]]:
    """What `stepscope doctor --sink mlflow` says, line by line."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "MLFLOW_"))}
    sinks = json.dumps([{"mlflow": {"uri": uri, "timeout": 5, **options}}])
    done = subprocess.run(
        [sys.executable, "-m", "stepscope", "doctor", "--home", str(home), "--sink", "mlflow"],
        env={**kept, "PYTHONPATH": str(PACKAGE), "STEPSCOPE_SINKS": sinks},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (Deed(404, {"content-type": "text/html"}, b"<html>"), "check the path of the address"),
        (Deed(401, {}, b"You are not authenticated"), "not authenticated.*set a valid token"),
        (Deed(403, {}, b"Permission denied"), "may not write there"),
        (Deed(403, {}, b"Invalid Host header - possible DNS rebinding attack detected"), "--allowed-hosts"),
        (Deed(302, {"Location": "/login"}, b""), "redirect to /login.*login page"),
        (Deed(200, {}, b"<html>It works!</html>"), "not from an MLflow server"),
        (Deed(drop=True), "tunnel with nothing behind it"),
    ],
)
def test_the_doctor_explains(gate: Gate, tmp_path: Path, deed: Deed, words: str) -> None:
    """One line for each part, with what is wrong and what to do."""
    gate.decide = lambda passed: deed
    code, lines = doctor(tmp_path, gate.url)
    assert (code, len(lines)) == (1, 2)
    assert all(re.search(words, line) for line in lines), lines


def test_the_doctor_explains_what_does_not_answer(gate: Gate, tmp_path: Path) -> None:
    """A closed tunnel, a port without TLS, an unknown host name."""
    code, lines = doctor(tmp_path, gate.url.replace("http:", "https:"))
    assert (code, all("is the server really speaking TLS" in line for line in lines)) == (1, True)
    gate.close()
    code, lines = doctor(tmp_path, gate.url)
    assert (code, all("tunnel closed" in line for line in lines)) == (1, True)
    code, lines = doctor(tmp_path, "http://no-such-host.invalid:5000")
    assert (code, all("DNS" in line for line in lines)) == (1, True)


def test_tls_that_is_not_checked(tmp_path: Path) -> None:
    """A self-signed certificate is refused with the fix, and accepted with `insecure_tls`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    paths = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*line.split(), "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    gate = Gate(tls=context)
    gate.decide = lambda passed: Deed(418, {}, b"short and stout")
    try:
        assert "not trusted" in doctor(tmp_path, gate.url)[1][0]
        assert "HTTP 418" in doctor(tmp_path, gate.url, insecure_tls=True)[1][0]
        assert "HTTP 418" in doctor(tmp_path, gate.url, certificate=paths[0])[1][0]
    finally:
        gate.close()
