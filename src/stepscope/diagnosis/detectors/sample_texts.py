"""Answers in tables of samples: loops, empty ones, equal ones in a group, cut-off ones, and those in another script."""

import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from stepscope.diagnosis.detector import Found, RunState
from stepscope.diagnosis.detectors.rollouts import TRUNCATION
from stepscope.diagnosis.finding import Finding, Kind
from stepscope.model.records import Log
from stepscope.model.sample_columns import ANSWERS, ENDINGS, PROMPTS, text_in

_NEXT = "stepscope samples RUN --step STEP"
LOOPS = Kind(
    "looping_samples",
    "WARN",
    "the model repeats itself until the length limit: it collapses, or the sampler lost its end token or its penalty",
    "Read such an answer; check the end token and the sampling parameters, and whether the reward pays for length.",
    explains=("truncation", "length_shift", "entropy_collapse"),
    lasts=True,
    expects="answers that end before they repeat themselves",
    next=_NEXT,
)
EMPTY = Kind(
    "empty_samples",
    "WARN",
    "the model ends its answers at once: it was trained on empty answers, or prompt and template do not fit",
    "Look at the prompt as tokens, at the chat template and at what the first end token of the answer is.",
    explains=("zero_advantage", "length_shift", "reward_collapse"),
    lasts=True,
    expects="answers with text",
    next=_NEXT,
)
EQUAL = Kind(
    "equal_samples",
    "WARN",
    "all answers to a prompt are the same: the policy has collapsed, or sampling uses one seed or no temperature",
    "Check temperature and seed of the sampler; answers that are equal have no advantage over each other.",
    explains=("zero_advantage", "entropy_collapse"),
    lasts=True,
    expects="different answers to the same prompt",
    next=_NEXT,
)
SCRIPT = Kind(
    "script_change",
    "WARN",
    "the model answers in another script than it is asked in, or mixes them: the reward does not see the language",
    "Read such an answer; add a reward for the language of the prompt, or stop before this step.",
    lasts=True,
    expects="answers in the script of the prompt",
    next=_NEXT,
)
WINDOW = 64
"""Answers that are judged together, and how many come first to compare with."""
MAX_TABLES = 8
MAX_GROUPS = 256
TAIL, SHORTEST_TAIL, LOOP_RATIO = 800, 400, 0.08
"""The end of an answer is a loop when it is at least so long and compresses to such a share of its length."""
MAX_READ = 2000
"""Characters in which letters are counted."""
FEW, OFTEN, MOSTLY = 0.1, 0.25, 0.5
MIN_GROUP, MIN_EQUAL_TEXT, GROUPS, EQUAL_GROUPS = 4, 40, 8, 0.8
"""Answers of a group, characters of each (short answers may well be equal), groups that are judged, and how many."""
MIN_LETTERS, MIXED = 40, 0.2
_CUT = frozenset(("length", "max_tokens", "max_length", "max_new_tokens"))
_SCRIPTS = (
    (0x0400, 0x0530, "Cyrillic"), (0x0590, 0x0600, "Hebrew"), (0x0600, 0x0780, "Arabic"), (0x0900, 0x0E00, "Indic"),
    (0x0E00, 0x0E80, "Thai"), (0x1100, 0x1200, "Korean"), (0x3040, 0x3100, "Japanese"), (0x3400, 0x4DC0, "Chinese"),
    (0x4E00, 0xA000, "Chinese"), (0xAC00, 0xD7B0, "Korean"),
)  # fmt: skip
"""Ranges of letters. Latin and Greek letters are in formulas and code of any language, and so never another script."""


class Answer(NamedTuple):
    """What is kept of one answer."""

    loops: bool
    empty: bool
    cut: bool | None
    """None where nothing says why it ended."""
    foreign: bool


class _Groups:
    """Answers of one table to the same prompt, of one rank at one step."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, int, int], list[int]] = OrderedDict()
        """The hash of the first answer, how many answers there are, and how many of them are short or differ."""
        self.equal: deque[bool] = deque(maxlen=GROUPS)
        self.were_different = 0

    def take(self, rank: int, step: int, prompt: str, answer: str) -> None:
        key, hashed = (rank, step, hash(prompt)), hash(answer)
        found = self._open.setdefault(key, [hashed, 0, 0])
        found[1] += 1
        found[2] += hashed != found[0] or len(answer) < MIN_EQUAL_TEXT
        while self._open and (len(self._open) > MAX_GROUPS or next(iter(self._open))[1] < step):
            _, (_, count, different) = self._open.popitem(last=False)
            if count >= MIN_GROUP:
                self.equal.append(not different)
                self.were_different += bool(different)

    @property
    def collapsed(self) -> bool:
        """Whether nearly all of the last groups have equal answers."""
        return len(self.equal) == GROUPS and sum(self.equal) >= EQUAL_GROUPS * GROUPS


class _Table:
    """One table: the last answers, what the first ones were like, and what was reported."""

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque(maxlen=WINDOW)
        self.first: tuple[Answer, ...] = ()
        self.taken = 0
        self.groups = _Groups()
        self.reported: set[str] = set()


class Samples:
    """Watches tables of samples that have a column for the answer."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOOPS, EMPTY, EQUAL, SCRIPT, TRUNCATION)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._tables: dict[str, _Table] = {}

    def sample(self, rank: int, log: Log, step: int | None) -> Found:
        """Evaluate a row; answers are judged when so many have come."""
        row, name = log.attrs, str(log.body)
        answer = text_in(row, ANSWERS)
        if answer is None:
            return ()
        table = self._tables.get(name)
        if table is None:
            if len(self._tables) >= MAX_TABLES:
                return ()
            table = self._tables[name] = _Table()
        prompt = text_in(row, PROMPTS)
        table.answers.append(_look(row, prompt, answer))
        table.taken += 1
        if prompt is not None and step is not None:
            table.groups.take(rank, step, prompt, answer)
        if table.taken == WINDOW:
            table.first = tuple(table.answers)
        if table.taken < WINDOW or table.taken % (WINDOW // 4):
            return ()
        return self._judge(name, table, row, log, step)

    def _judge(self, name: str, table: _Table, row: Mapping[str, Any], log: Log, step: int | None) -> list[Finding]:
        found: list[Finding] = []
        later = table.taken >= 2 * WINDOW
        loops, loops_first = _share(table.answers, "loops"), _share(table.first, "loops")
        if later and loops >= (OFTEN if _has_rewards(row) else MOSTLY) and loops_first < FEW:
            found.append(_finding(LOOPS, name, "end in a loop", loops, loops_first, log, step))
        empty, empty_first = _share(table.answers, "empty"), _share(table.first, "empty")
        if empty >= MOSTLY or (later and empty >= OFTEN and empty_first < FEW):
            found.append(_finding(EMPTY, name, "are empty", empty, empty_first, log, step))
        foreign, foreign_first = _share(table.answers, "foreign"), _share(table.first, "foreign")
        if later and foreign >= OFTEN and foreign_first < FEW:
            found.append(_finding(SCRIPT, name, "are in another script", foreign, foreign_first, log, step))
        cut, cut_first = _share(table.answers, "cut"), _share(table.first, "cut")
        if later and cut >= MOSTLY and (cut_first < cut - OFTEN or cut > 1 - FEW):
            found.append(_finding(TRUNCATION, name, "were cut off", cut, cut_first, log, step))
        if table.groups.collapsed and (table.groups.were_different >= GROUPS or _has_rewards(row)):
            text = (
                f"the answers to one prompt in {name} are all the same, in {sum(table.groups.equal)} of {GROUPS} groups"
            )
            found.append(EQUAL.finding(text, log.time, step=step))
        fresh = [each for each in found if each.kind not in table.reported]
        table.reported.update(each.kind for each in fresh)
        return fresh


def _finding(kind: Kind, table: str, what: str, now: float, before: float, log: Log, step: int | None) -> Finding:
    text = f"{now:.0%} of the last {WINDOW} answers in {table} {what}, {before:.0%} of the first"
    return kind.finding(text, log.time, step=step, value=now, expects=kind.expects or f"at most {before:.0%}")


def _look(row: Mapping[str, Any], prompt: str | None, answer: str) -> Answer:
    ending = text_in(row, ENDINGS)
    cut = row.get("truncated") if ending is None else ending.strip().lower() in _CUT
    return Answer(
        is_loop(answer), not answer.strip(), cut if isinstance(cut, bool) else None, is_foreign(prompt or "", answer)
    )


def is_loop(answer: str) -> bool:
    """Return whether an answer ends in the same few words again and again."""
    tail = answer[-TAIL:].encode("utf-8", "replace")
    return len(tail) >= SHORTEST_TAIL and len(zlib.compress(tail, 1)) < LOOP_RATIO * len(tail)


def is_foreign(prompt: str, answer: str) -> bool:
    """Return whether a part of an answer is in a script that its prompt does not use."""
    if answer.isascii():
        return False
    scripts = _scripts(answer)
    letters = sum(scripts.values())
    if letters < MIN_LETTERS:
        return False
    asked = _scripts(prompt)
    asked_in = {"Chinese", "Japanese"} if "Japanese" in asked else set()
    return sum(count for name, count in scripts.items() if name and name not in asked and name not in asked_in) > (
        MIXED * letters
    )


def _scripts(text: str) -> Counter[str]:
    """Count the letters of the beginning of a text by script; those of Latin and Greek under no name."""
    found: Counter[str] = Counter()
    for letter, count in Counter(text[:MAX_READ]).items():
        if letter.isalpha():
            code = ord(letter)
            found[next((name for first, end, name in _SCRIPTS if first <= code < end), "")] += count
    return found


def _share(answers: "deque[Answer] | tuple[Answer, ...]", field: str) -> float:
    """The share of answers of which something is true, among those of which it is known."""
    known = [value for each in answers if (value := getattr(each, field)) is not None]
    return sum(known) / len(known) if len(known) >= WINDOW // 2 else 0.0


def _has_rewards(row: Mapping[str, Any]) -> bool:
    """Return whether rows are rollouts, which come with a reward."""
    return any(name.lower().startswith(("reward", "advantage", "score")) for name in row)
