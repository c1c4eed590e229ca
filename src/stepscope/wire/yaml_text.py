"""YAML from files and requests, read by one loader that refuses what would cost more than its size."""

from typing import Any

import yaml

LONGEST = 1024 * 1024
DEEPEST = 30
"""The deepest nesting; PyYAML's time per character grows with the square of the depth."""


MAX_NODES = 40_000
"""The most names, values, lists and mappings: PyYAML takes about 20 µs for each, so that 512 KiB of commas took 9 s."""


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader with limits on depth and number, which it checks while it reads."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read a word, list or mapping."""
        self._nodes = getattr(self, "_nodes", 0) + 1
        if self._nodes > MAX_NODES:
            problem = f"there are more than {MAX_NODES} names and values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.get_mark())
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, token: Any) -> None:
        """Begin a list or mapping in brackets."""
        if self.flow_level >= DEEPEST:
            raise self._too_deep()
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> bool:
        """Begin a list or mapping that is indented."""
        if len(self.indents) >= DEEPEST:
            raise self._too_deep()
        return bool(super().add_indent(column))

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Read a word; one that cannot be encoded, such as half a surrogate pair (`"\\ud800"`), is an error."""
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        try:
            node.value.encode()
        except UnicodeEncodeError as error:
            problem = f"the character {error.object[error.start]!a} cannot be written as UTF-8"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
        return node

    def _too_deep(self) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem="this is nested too deeply", problem_mark=self.get_mark())


def load(text: str) -> Any:
    """Read a text; yaml.YAMLError when it is invalid, too long, or nested too deeply."""
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"there are more than {LONGEST} characters")
    try:
        return yaml.load(text, Loader=Loader)
    except (ValueError, OverflowError, RecursionError) as error:  # an invalid date or number
        raise yaml.YAMLError(str(error)) from None
