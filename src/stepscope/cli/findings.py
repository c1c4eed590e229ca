"""`stepscope findings`: what went wrong in a run, with the likely cause and what to do."""

import argparse
import contextlib
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.journal_answers import RUN
from stepscope.cli.journal_diagnosis import JournalDiagnosis
from stepscope.cli.options import LATEST_HELP, Commands, add_command, home_of, print_answer
from stepscope.cli.stored_run import open_answers
from stepscope.diagnosis.findings_json import FindingJson
from stepscope.hub.client import HubError, open_http_client
from stepscope.model.errors import StepscopeError
from stepscope.model.goodput_sums import in_words

PATH = "/api/runs/{run}/findings"
INDENT = 7
ASK_SECONDS = 1.0
"""The hub is asked for findings this often."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "findings", "say what went wrong in a run, why, and what to do", command)
    made.add_argument("run", nargs="?", default="latest", metavar="RUN", help=LATEST_HELP)


def command(args: argparse.Namespace) -> int:
    """Print the findings."""
    with open_answers(home_of(args), args.run) as stored:
        answer = {**stored.get(PATH), "time": in_words(stored.get(f"{RUN}/goodput")["shares"])}
    width = text.width()
    print_answer(args, answer, (text.tinted_line(each) for line in _report(answer) for each in wrapped(line, width)))
    return 0


def _of_hub(home: Path, run: str) -> dict[str, Any] | None:
    """The answer of the hub that has the home open; None without one, or when it does not know the run."""
    with contextlib.suppress(HubError, StepscopeError, OSError):
        client = open_http_client(home, timeout=5.0)
        answer: dict[str, Any] | None = client.get(PATH, run=run) if client is not None else None
        return answer
    return None


class LatestFindings:
    """The findings of a run in progress: those of the hub, else of the journals, which are read as time allows."""

    def __init__(self, home: Path, run: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._home, self._run, self._clock = home, run, clock
        self._journals = JournalDiagnosis(home, run)
        self._stored: list[FindingJson] | None = None
        self._asked = -ASK_SECONDS

    def advance(self, seconds: float) -> bool:
        """Look for new findings for about so long; False when nothing is left for now."""
        if self._clock() - self._asked >= ASK_SECONDS:
            answer = _of_hub(self._home, self._run)
            self._asked, self._stored = self._clock(), answer["findings"] if answer else None
        return self._stored is None and self._journals.advance(seconds)

    def findings(self) -> list[FindingJson]:
        """The findings so far, as a hub answers them."""
        return self._journals.findings() if self._stored is None else self._stored


def _report(answer: dict[str, Any]) -> Iterator[str]:
    quiet = all(each["muted"] for each in answer["findings"])
    if not answer["complete"]:
        found = ", nothing found yet" if quiet else ""
        yield f"{answer['run']} is being diagnosed, {answer['progress']:.0%} so far{found}"
    elif quiet:
        yield f"nothing {'unexpected ' if answer['findings'] else ''}went wrong in {answer['run']}"
    for each in answer["findings"]:
        yield line(each)
        if each["muted"]:
            yield explanation(each["muted"])
            continue
        excluded = f"This rules out {each['rules_out']}." if each["rules_out"] else ""
        words = (
            each["band"],
            each["cause"],
            excluded,
            each["advice"],
            f"$ {each['next'].replace('RUN', answer['run'])}",
        )
        yield from (explanation(word) for word in words if word)
        yield from (explanation(f"- {symptom}") for symptom in each["symptoms"])
    if answer["time"]:
        yield f"time   {text.clean(answer['time'])}"


def wrapped(line: str, width: int) -> list[str]:
    """Wrap a line about a finding."""
    return textwrap.wrap(line, width, subsequent_indent=" " * INDENT, drop_whitespace=True) or [line]


def explanation(words: str) -> str:
    """A line that explains a finding, below it."""
    return " " * INDENT + text.clean(words)


def line(finding: Mapping[str, Any]) -> str:
    """A finding in one line."""
    sign = "muted" if finding["muted"] else finding["severity"]
    return text.clean(f"{sign:<5}  {finding['kind'].replace('_', ' ')}: {finding['text']}")
