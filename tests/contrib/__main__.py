"""Run the suites of OpenTelemetry's instrumentation packages with the SDK's providers and with ours, and compare.

`python -m tests.contrib [NAME ...]` makes an environment in .venv-contrib, fetches the sources and prints a table;
`--fetch NAME ...` fetches sources only. It takes some minutes, so that one suite alone is among the tests.
"""

import os
import subprocess
import sys
import tarfile
import venv
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".venv-contrib"
RELEASE = version("opentelemetry-instrumentation")
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")
SUITES = (
    "aiohttp-client", "aiohttp-server", "asgi", "asyncio", "boto3sqs", "botocore", "celery", "click", "dbapi", "django",
    "falcon", "fastapi", "flask", "grpc", "httpx", "jinja2", "logging", "pika", "psycopg2", "pymemcache", "pyramid",
    "redis", "requests", "sqlalchemy", "sqlite3", "starlette", "system-metrics", "threading", "tornado", "urllib",
    "urllib3", "wsgi",
)  # fmt: skip
NEEDED = (
    "aiobotocore", "aiohttp", "aiosqlite", "asgiref", "boto3", "celery", "click", "django", "fakeredis",
    "falcon", "fastapi", "flask", "greenlet", "grpcio", "http_server_mock", "httpretty", "httpx", "jinja2",
    "mocket", "moto[all]", "opentelemetry-propagator-aws-xray", "pika", "protobuf", "psutil", "psycopg2-binary",
    "pymemcache", "pyramid", "pytest", "pytest-aiohttp", "pytest-asyncio", "pytest-timeout", "pytest-vcr", "pyyaml",
    "redis", "requests", "responses", "respx", "setuptools>=77", "sqlalchemy<2.1", "starlette", "tornado", "urllib3",
    "webtest", "werkzeug",
)  # fmt: skip
"""What those tests import; the packages do not say so themselves."""
SECONDS = 400
"""For one suite."""


def prepare() -> None:
    """Make the environment, unless it is there."""
    if (PLACE / "ready").exists():
        return
    venv.create(PLACE, with_pip=True)
    ours = [f"opentelemetry-instrumentation-{name}=={RELEASE}" for name in SUITES]
    pip = [str(PLACE / "bin" / "python"), *PIP, "install"]
    subprocess.run([*pip, *NEEDED, f"opentelemetry-test-utils=={RELEASE}", *ours], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--editable", str(ROOT)], check=True)
    (PLACE / "ready").touch()


def fetch(names: list[str]) -> None:
    """Unpack the sources that are not there yet; their tests are in no wheel."""
    for name in names:
        if not source_of(name).exists():
            options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(PLACE / "sources")]
            package = f"opentelemetry-instrumentation-{name}=={RELEASE}"
            subprocess.run([sys.executable, *PIP, "download", *options, package], check=True, stdout=subprocess.DEVNULL)
            with tarfile.open(f"{source_of(name)}.tar.gz") as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
                archive.extractall(PLACE / "sources")


def source_of(name: str) -> Path:
    """The folder of a package's sources."""
    return PLACE / "sources" / f"opentelemetry_instrumentation_{name.replace('-', '_')}-{RELEASE}"


def run(python: str, source: Path, report: Path, *options: str) -> dict[str, bool]:
    """Run a suite and tell which of its tests passed."""
    env = {
        **os.environ,
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",  # grpc's suite has old generated code
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), str(source / "tests"))),
    }
    command = [python, "-m", "pytest", "tests", "-q", "--timeout=300", "-p", "no:cacheprovider", f"--junitxml={report}"]
    try:
        subprocess.run([*command, *options], cwd=source, env=env, timeout=SECONDS, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return {}
    if not report.exists():
        return {}
    cases = ElementTree.parse(report).getroot().iter("testcase")
    bad = ("failure", "error", "skipped")
    return {f"{each.get('classname')}::{each.get('name')}": not any(part.tag in bad for part in each) for each in cases}


def main(names: list[str]) -> int:
    """Print one line for each suite and the sum; 0 when ours passes 95 % of what the SDK's passes."""
    prepare()
    fetch(names)
    python = str(PLACE / "bin" / "python")
    totals = [0, 0]
    for name in names:
        source, report = source_of(name), PLACE / f"{name}.xml"
        theirs = {test for test, passed in run(python, source, PLACE / f"{name}-sdk.xml").items() if passed}
        ours = run(python, source, report, "-p", "adapter")
        lost = sorted(test for test in theirs if not ours.get(test))
        totals = [totals[0] + len(theirs), totals[1] + len(theirs) - len(lost)]
        print(f"{name:16} {len(theirs) - len(lost):5} of {len(theirs)}", flush=True)
        for test in lost:
            print(f"    {test}")
    print(f"{'all':16} {totals[1]:5} of {totals[0]} that pass with the SDK")
    return 0 if totals[1] >= 0.95 * totals[0] else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fetch"]:
        sys.exit(fetch(sys.argv[2:]))
    sys.exit(main(sys.argv[1:] or list(SUITES)))
