"""What wandb can log beside numbers; here it is taken, counted as rejected, and not kept."""

from typing import Any


class Media:
    """An image, a table, a file: holds what it was made of, for the script may look at it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.arguments = arguments
        self.named = named

    def add_data(self, *row: Any) -> None:
        """Take a row of a table."""

    def add_file(self, *arguments: Any, **named: Any) -> None:
        """Take a file of an artifact."""

    def add_dir(self, *arguments: Any, **named: Any) -> None:
        """Take a folder of an artifact."""
