"""Rejected keys with the call that would record them."""

from collections.abc import Iterator, Mapping

from stepscope.cli import text

_CALLS = {
    "string": "run.event({key}, {{'text': value}}) keeps a text; run.log takes numbers",
    "none": "log it only where there is a value: if value is not None: run.log({{{key}: value}})",
    "vector": "run.log({{{key}: value.mean()}}), or each element under a key of its own",
    "complex": "run.log({{{key}: {{'real': value.real, 'imag': value.imag}}}})",
    "too large": "run.log({{{key}: math.log10(value)}}); a value must fit a 64-bit float",
    "too deep": "run.log({{{key}: number}}); nest fewer dicts",
    "too many dicts": "run.log({{{key}: number}}); log fewer keys in one call",
    "unknown argument": "leave it out, or put it into the values: run.log({{...}}, step=step, category=category)",
    "step is out of range": "run.log(values, step=step) takes 64-bit integers",
    "inside a graph being captured": "log it after the captured region",
}
"""The call by the reason of the rejection."""
_BEGINNINGS = {
    "step must be an integer": "run.log(values, step=int(step))",
    "type ": "run.log({{{key}: float(value)}}), or run.event({key}, {{'value': str(value)}})",
    "on device meta": "log it once it has a value",
}


def lines(rejected: Mapping[str, str]) -> Iterator[str]:
    """For each key its reason, and below it the call that would record it."""
    for key, reason in rejected.items():
        yield text.clean(f"{key!r}: {reason}")
        call = _CALLS.get(reason) or next((call for start, call in _BEGINNINGS.items() if reason.startswith(start)), "")
        if call:
            yield text.clean(f"  {call.format(key=repr(key))}")
