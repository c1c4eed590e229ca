"""Lines of torch's compiler: functions that are compiled again and again are named."""

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.names import SEVERITIES
from stepscope.model.records import Log

LIMIT = "torch._dynamo hit config.recompile_limit (8)\n   function: 'forward' (model.py:12)"
AGAIN = "Recompiling function forward in model.py:12\n    triggered by the following guard failure(s):"


def found_in(lines: list[str]) -> list[Finding]:
    """Diagnose lines of the compiler, one a second."""
    made = Diagnosis()
    for at, body in enumerate(lines):
        time, scope = (at + 1) * 10**9, "torch._dynamo.convert_frame"
        made.feed(0, Log(time, at, None, None, None, SEVERITIES["WARN"], body, {}, scope))
    return made.findings()


def test_a_function_that_reaches_the_limit_of_recompilations_is_named() -> None:
    """Torch says once that it gives up; the line is the evidence."""
    (found,) = found_in([LIMIT])
    assert found.kind == "recompilation"
    assert "recompile_limit" in found.text


def test_a_few_recompilations_are_usual() -> None:
    """Shapes settle in the first steps; more than eight are a fault."""
    assert found_in([AGAIN] * 6) == []
    assert [each.kind for each in found_in([AGAIN] * 12)] == ["recompilation"]
