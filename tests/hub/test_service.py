"""The hub is composed: parts get what they need when they are constructed, and change nothing of each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import stepscope

HUB = Path(stepscope.__file__).parent / "hub"
ALLOWED = {
    ("diagnosing/tracked.py", "self.diagnosis.run.world"): "a fact about the run, which the engine reads",
    ("diagnosing/tracked.py", "self.diagnosis.run.earlier"): "likewise",
    ("serving/app.py", "inner.router.redirect_slashes"): "Starlette takes it in no other way",
    ("store/cluster/session.py", "self._connection.is_query_executing"): "a flag that the driver leaves set",
    ("store/write/catalog.py", "source.run_numbers.following"): "a count in a record",
}
"""Assignments into fields of parts of other objects, with the reason."""


def assigned(node: ast.AST) -> Iterator[ast.expr]:
    """The targets of an assignment, one by one."""
    targets = (
        node.targets
        if isinstance(node, ast.Assign | ast.Delete)
        else [node.target]
        if isinstance(node, ast.AugAssign | ast.AnnAssign)
        else []
    )
    while targets:
        target, *targets = targets
        if isinstance(target, ast.Tuple | ast.List):
            targets = [*target.elts, *targets]
        elif isinstance(target, ast.Starred):
            targets = [target.value, *targets]
        else:
            yield target


def foreign(code: str) -> set[str]:
    """The assignments of a module like `a.b.c = x`: into a field of an object that another one has."""
    return {
        ast.unparse(target)
        for node in ast.walk(ast.parse(code))
        for target in assigned(node)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Attribute)
    }


def test_no_part_assigns_into_another() -> None:
    """Every assignment in the hub is to a variable, to its own field or to a record, but for those listed."""
    found = {(str(path.relative_to(HUB)), each) for path in HUB.rglob("*.py") for each in foreign(path.read_text())}
    assert found == ALLOWED.keys()


def test_such_an_assignment_is_noticed() -> None:
    """Whatever its form; one to a field of its own is not foreign."""
    code = "def f(self, hub):\n    hub.alerting.on = 1\n    self.a, self.b.c = 1, 2\n    hub.x.y += 1\n    self.d = 1"
    assert foreign(code) == {"hub.alerting.on", "self.b.c", "hub.x.y"}
