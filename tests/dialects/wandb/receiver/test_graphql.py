"""The part of GraphQL that W&B clients use."""

from typing import Any

import pytest

from stepscope.dialects.wandb.receiver.graphql import GraphQLError, JsonValue, execute, parse

ROOTS: dict[str, Any] = {
    "query": {
        "viewer": {"id": "V", "name": "me", "info": JsonValue(a=1)},
        "project": lambda given: {
            "__typename": "Project",
            "name": given.get("name"),
            "runs": [{"name": "a"}, {"name": "b"}],
            "run": lambda inner: None if inner["name"] == "none" else {"name": inner["name"], "given": str(inner)},
        },
    },
    "mutation": {"change": lambda given: {"input": str(given["input"])}},
}


def run(text: str, name: str | None = None, **variables: Any) -> dict[str, Any]:
    """Parse and execute."""
    return execute(parse(text), ROOTS, variables, name)


def test_only_what_is_selected_is_answered() -> None:
    """Fields, aliases, lists and null objects come back in the shape of the query."""
    text = """query Q($project: String!, $other: String = "b\\u0021") {
      who: viewer { id info missing { x } }
      project(name: $project) { __typename runs { name } first: run(name: "none") { name } run(name: $other) { name } }
    }"""
    assert run(text, project="p") == {
        "who": {"id": "V", "info": {"a": 1}, "missing": None},
        "project": {
            "__typename": "Project",
            "runs": [{"name": "a"}, {"name": "b"}],
            "first": None,
            "run": {"name": "b!"},
        },
    }


def test_fragments_and_directives() -> None:
    """Named and inline fragments are merged; @include and @skip are obeyed."""
    text = """query ($yes: Boolean!) { project(name: "p") {
      ...More ... on Project { name } ... @skip(if: $yes) { x: name }
      run(name: "a") @include(if: $yes) { name } } }
      fragment More on Project { y: name @skip(if: false) z: name @include(if: false) ...Runs }
      fragment Runs on Project { runs { name } }"""
    found = run(text, yes=True)["project"]
    assert found == {"y": "p", "runs": [{"name": "a"}, {"name": "b"}], "name": "p", "run": {"name": "a"}}


def test_values_of_arguments() -> None:
    """Objects, lists, enums, numbers, texts, blocks and variables inside them reach the resolver."""
    given = '{a: $v, b: [1, -2.5e3, ENUM, null, true], c: "x\\n", d: """ y """}'
    text = f"mutation M($v: [Int!]) {{ change(input: {given}) {{ input }} }}"
    expected = {"a": [1, 2], "b": [1, -2500.0, "ENUM", None, True], "c": "x\n", "d": "y"}
    assert run(text, v=[1, 2])["change"]["input"] == str(expected)


def test_operations_are_chosen_by_name() -> None:
    """A document with several operations needs the name of one."""
    text = "query A { viewer { id } } query B { viewer { name } }"
    assert run(text, "B") == {"viewer": {"name": "me"}}
    with pytest.raises(GraphQLError, match="operationName"):
        run(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{ viewer { id }",
        "query Q($a) { viewer { id } }",
        "{ viewer(a: ) { id } }",
        '{ viewer(a: "\\q") { id } }',
        "{ ...Gone }",
        "subscription { viewer { id } }",
        "{ nothing { id } }",
        "{ viewer { id } } §",
        "{" * 100 + "}" * 100,
        "{ viewer(a: " + "[" * 5000 + ") { id } }",
        "{ viewer { " + "id " * 30_000 + "} }",
        "{ ...A } fragment A on X { ...A }",
        "{ ...F0 } "
        + " ".join(f"fragment F{n} on X {{ ...F{n + 1} ...F{n + 1} }}" for n in range(38))
        + " fragment F38 on X { a }",
    ],
)
def test_what_cannot_be_answered_is_an_error(text: str) -> None:
    """Bad syntax, unknown root fields, endless fragments and nesting without end raise GraphQLError, soon."""
    with pytest.raises(GraphQLError):
        run(text)
