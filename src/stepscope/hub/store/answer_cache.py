"""Answers to recent queries, valid until the store changes."""

import threading

MAX_BYTES = 16 * 1024 * 1024
LARGEST = MAX_BYTES // 8
"""A larger answer is not kept: it would displace many others."""


class AnswerCache:
    """Keeps encoded answers by statement, the most recently used ones; all methods are thread-safe.

    Views ask the same questions again and again, and to parse and plan a query takes the engine milliseconds, however
    little it reads.
    """

    def __init__(self, most_bytes: int = MAX_BYTES, largest: int = LARGEST) -> None:
        self._most_bytes, self._largest = most_bytes, largest
        self._lock = threading.Lock()
        self._answers: dict[str, bytes] = {}
        self._bytes = 0
        self.version = 0
        """Grows with every change of the store. Read it before a query and pass it to `put` with the answer."""

    def __contains__(self, sql: str) -> bool:
        return sql in self._answers

    def get(self, sql: str) -> bytes | None:
        """Return the answer to a statement, None if it is not known."""
        with self._lock:
            found = self._answers.pop(sql, None)
            if found is not None:
                self._answers[sql] = found
            return found

    def put(self, sql: str, answer: bytes, version: int) -> None:
        """Keep an answer, unless the store has changed since its query began.

        Answers from tables of the system are not kept: those change by themselves.
        """
        size = len(sql) + len(answer)
        if size > self._largest or "system." in sql:
            return
        with self._lock:
            if version != self.version or sql in self._answers:
                return
            self._answers[sql] = answer
            self._bytes += size
            while self._bytes > self._most_bytes:
                oldest = next(iter(self._answers))
                self._bytes -= len(oldest) + len(self._answers.pop(oldest))

    def clear(self) -> None:
        """Forget all answers: the store has changed, or may have."""
        with self._lock:
            self.version += 1
            self._answers.clear()
            self._bytes = 0
