"""A hub that kills itself in an MLflow request when a file asks for it: `python dying_hub.py hub --home DIR`."""

import os
import signal
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from stepscope.cli.main import main
from stepscope.dialects.mlflow.receiver import tracking_api
from stepscope.hub.intake.intake_journal import Intake

BEFORE, AFTER = "before the journal is written", "after the journal is written"


def _die_as_told(order: Path) -> None:
    wait_for_journal, write = tracking_api.written, Intake._write

    def told() -> str:
        return order.read_text() if order.exists() else ""

    async def answer(done: "Future[None]") -> None:
        if told() != BEFORE:
            await wait_for_journal(done)
        if told():
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def journal(intake: Intake, group: Any) -> None:
        if told() == BEFORE:
            threading.Event().wait()
        write(intake, group)

    tracking_api.written, Intake._write = answer, journal  # type: ignore[method-assign]


if __name__ == "__main__":
    _die_as_told(Path(os.environ["STEPSCOPE_TEST_ORDER"]))
    sys.exit(main(sys.argv[1:]))
