"""JSON from clients, as values that can be stored."""

import json
from typing import Any


def read_json(data: str | bytes) -> Any:
    """Parse JSON, also with bare NaN and Infinity; a lone surrogate, which UTF-8 cannot encode, becomes `?`.

    ValueError or RecursionError when it cannot be parsed.
    """
    found = json.loads(data)
    plain = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if plain.isascii() and b"\\ud" not in plain.lower():
        return found
    text = json.dumps(found, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    return found
