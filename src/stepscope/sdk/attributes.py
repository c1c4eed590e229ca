"""Attributes of records: copied when given, and bounded in size; the flusher masks them."""

import dataclasses
import sys
from collections.abc import ItemsView, Mapping
from itertools import islice
from typing import Any

from stepscope.model.attribute_limit import left_out
from stepscope.model.redaction import key_text, mask_text
from stepscope.sdk.context import text_of
from stepscope.sdk.interrupts import pass_on

LONGEST = 64 * 1024
"""Characters of one string; a longer one is truncated and marked."""
MOST = 256
"""Attributes of one record, and entries of one list or dict in it."""
DEPTH = 8
MAX_VALUES = 10_000
"""Values of one record over all its lists and dicts; bounds self-referencing ones."""
MAX_LOOKED, MAX_LOOKED_TOGETHER = 2000, 10_000
"""Entries of one dict, and of all dicts of a record, of which those that are kept are chosen."""
MAX_HARMLESS = 10_000
CUT = "…"
"""Marks what was truncated."""
CUT_KEY = "stepscope.cut"
"""Key of the number of entries that were left out of a dict."""
CUT_KEYS_KEY = "stepscope.cut_keys"
"""Key of the first and the last of these entries."""
harmless: set[str] = set()
"""Keys that neither name a secret nor hold one, as far as the flusher has seen them."""
plain_texts: set[str] = set()
"""Short strings without secrets that the flusher has seen, mostly recurring names and values."""
LONGEST_PLAIN = 64
NUMBERS = frozenset((int, float, bool))
_FLAT = (float, bool, bytes, type(None))


def clean(attrs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy attributes so that later changes do not affect them. Secrets in them are masked before they are written.

    Truncation marks fit the same limits, so a hub that truncates again changes nothing.
    """
    if not attrs:
        return {}
    return _Copy().mapping(attrs, DEPTH)


def is_known(attrs: Mapping[str, Any]) -> bool:
    """Return whether attributes can be recorded as they are: known keys, with numbers or known strings as values.

    Integers that do not fit into 64 bits are left to the encoder.
    """
    for key, value in attrs.items():
        kind = type(value)
        if key not in harmless or (value not in plain_texts if kind is str else kind not in NUMBERS):
            return False
    return True


def clean_value(value: Any) -> Any:
    """Copy one attribute's value."""
    return _Copy().value(value, DEPTH)


def safe_text(text: str) -> str:
    """Truncate a string that is too long and mask the secrets in it, for what is not masked by the flusher."""
    return mask_text(shorten(text))


def shorten(text: str) -> str:
    """Truncate a string that is too long; it then ends with its original length."""
    if len(text) <= LONGEST:
        return text
    sign = f"{CUT} ({len(text)} characters)"
    return text[: LONGEST - len(sign)] + sign


class _Copy:
    """Copies one record's attributes."""

    __slots__ = ("_left", "_looked")

    def __init__(self) -> None:
        self._left, self._looked = MAX_VALUES, 0

    def mapping(self, attrs: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        if len(attrs) > MOST:
            return self._cut(attrs, depth)
        copied: dict[str, Any] = {}
        for key, value in attrs.items():
            name = key if type(key) is str else text_of(key_text(key))
            copied[shorten(name)] = self.value(value, depth)
        return copied

    def _cut(self, attrs: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        """Copy a dict with too many entries, and say how many and which were left out, also by an earlier cut.

        Of very many, the first and the last are looked at.
        """
        most = max(min(MAX_LOOKED, MAX_LOOKED_TOGETHER - self._looked), MOST)
        self._looked += most
        looked = dict(attrs) if len(attrs) <= most else _ends(attrs, most)
        unseen = len(attrs) - len(looked)
        earlier, first = looked.pop(CUT_KEY, 0), looked.pop(CUT_KEYS_KEY, "")
        named = {key if type(key) is str else text_of(key_text(key)): value for key, value in looked.items()}
        gone = left_out(list(named), MOST - 2)
        for key in gone:
            del named[key]
        copied = self.mapping(named, depth)
        if not gone and not unseen:  # several keys had the same text
            return copied
        copied[CUT_KEY] = len(gone) + unseen + (earlier if type(earlier) is int else 0)
        if type(first) is str and first:
            gone.insert(0, first.partition(f" {CUT} ")[0])
        copied[CUT_KEYS_KEY] = f"{shorten(gone[0])} {CUT} {shorten(gone[-1])}" if gone else CUT
        return copied

    def several(self, values: list[Any], count: int, depth: int) -> list[Any]:
        """Copy the first elements of a list that has so many."""
        room = MOST if count <= MOST else MOST - 1
        copied = [self.value(inner, depth) for inner in values[:room]]
        if room < count:
            copied.append(f"{CUT} ({count - room} more)")
        return copied

    def value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return shorten(value)
        if kind is int:
            return value if -(2**63) <= value < 2**64 else str(value)
        if kind in _FLAT:
            return value
        self._left -= 1
        if depth == 0 or self._left < 0:
            return CUT
        try:
            if isinstance(value, Mapping):
                return self.mapping(value, depth - 1)
            if isinstance(value, (list, tuple, set, frozenset, ItemsView)):
                return self.several(list(islice(value, MOST)), len(value), depth - 1)
            inside = _inside(value)
            return _foreign(value) if inside is None else self.value(inside, depth - 1)
        except BaseException as raised:  # an object may raise anything when it is asked
            pass_on(raised)
            return f"<{kind.__name__}>"


def _ends(attrs: Mapping[Any, Any], most: int) -> dict[Any, Any]:
    """Return the first and the last entries of a dict; the first alone of a mapping that cannot be reversed."""
    if not isinstance(attrs, dict):
        return dict(islice(attrs.items(), most))
    last = list(islice(reversed(attrs.items()), most // 2))
    return dict([*islice(attrs.items(), most - len(last)), *reversed(last)])


def _inside(value: Any) -> Any:
    """Convert a namespace, dataclass, numpy or torch scalar to plain Python types; None for any other object."""
    argparse = sys.modules.get("argparse")
    if argparse is not None and isinstance(value, argparse.Namespace):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {entry.name: getattr(value, entry.name, None) for entry in dataclasses.fields(value)}
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        found = value.item()
        return str(found) if isinstance(found, numpy.generic) else found  # a longdouble is its own item
    if numpy is not None and isinstance(value, numpy.ndarray) and value.size <= MOST:
        return value.tolist()
    return _number(value)


def _number(value: Any) -> Any:
    """Return the number in a torch scalar in host memory; None for one on a device, and for any other object."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    try:
        plain = type(value) in (torch.Tensor, torch.nn.Parameter)  # one of another kind may have to ask other ranks
        return value.item() if plain and value.is_cpu and value.dim() == 0 else None
    except BaseException as raised:  # torch is only half imported, or inside a transform, where there is no number yet
        pass_on(raised)
        return None


def _foreign(value: Any) -> Any:
    """Return the text of an object, but never of a device tensor, which would wait for the device."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return shorten(str(value))
    if hasattr(value, "device") and hasattr(value, "shape"):
        return f"<{type(value).__name__} {tuple(value.shape)} on {value.device}>"
    return shorten(text_of(value))
