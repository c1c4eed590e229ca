"""The programs of the documentation run as they stand, with the official client, and are runs of the hub."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.dialects.datadog.conftest import DatadogHub

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "src/stepscope/dialects/datadog/README.md").read_text()


def run(program: str, **variables: str) -> None:
    """Run a program with some variables."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DD_", "DATADOG_"))}
    subprocess.run([sys.executable, "-c", program], env={**kept, **variables}, check=True, timeout=300)


def test_the_programs_of_the_page(datadog_hub: DatadogHub) -> None:
    """Two variables, and nothing else, lead DogStatsD and the HTTP API to a hub."""
    dogstatsd, http = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    run(dogstatsd, DD_AGENT_HOST="127.0.0.1", DD_DOGSTATSD_PORT=str(datadog_hub.udp_port))
    run(http, DATADOG_HOST=datadog_hub.url, DATADOG_API_KEY="any")
    losses = [row for row in datadog_hub.wait_rows("baseline", 200) if row[0] == "loss"]
    assert losses == [["loss", step, 1 / (step + 1)] for step in range(100)]
    assert [row for row in datadog_hub.wait_rows("report", 4) if row[0] == "loss"] == [
        ["loss", 41, 0.5],
        ["loss", 42, 0.25],
    ]
    for variable in ("DD_AGENT_HOST=127.0.0.1", "--dogstatsd 127.0.0.1:8125"):
        assert variable in (ROOT / "docs/bring-your-runs.md").read_text()
