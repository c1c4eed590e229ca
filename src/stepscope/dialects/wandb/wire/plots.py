"""wandb's charts of tables: which columns their specifications draw, and how."""

from collections.abc import Iterator, Mapping
from typing import Any

_FIELDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "line": ("line", {"x": "x", "y": "y", "by": "stroke"}),
    "lineseries": ("line", {"x": "step", "y": "lineVal", "by": "lineKey"}),
    "area-under-curve": ("line", {"x": "x", "y": "y", "by": "class"}),
    "scatter": ("points", {"x": "x", "y": "y"}),
    "bar": ("bars", {"x": "label", "y": "value"}),
    "histogram": ("histogram", {"x": "value"}),
    "confusion_matrix": ("matrix", {"y": "Actual", "x": "Predicted", "value": "nPredictions"}),
}
"""By the name of a specification: how it is drawn, and which of its fields names which column."""
MAX_CHARTS = 200


def chart_of(specification: Any, fields: Any, texts: Any) -> dict[str, str] | None:
    """How a chart of a specification such as `wandb/line/v0` is drawn; None for one of somebody's own."""
    parts = str(specification).split("/")
    known = _FIELDS.get(parts[1]) if len(parts) == 3 and parts[0] == "wandb" else None
    if known is None or not isinstance(fields, Mapping):
        return None
    style, columns = known
    found = {name: fields[field] for name, field in columns.items() if isinstance(fields.get(field), str)}
    title = texts.get("title") if isinstance(texts, Mapping) else None
    return {"style": style, **found, **({"title": title} if isinstance(title, str) and title else {})}


def charts_in(own: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the charts in the client's own part of a configuration: their keys, those of their tables, and how."""
    shown = own.get("visualize")
    for key, each in list(shown.items())[:MAX_CHARTS] if isinstance(shown, Mapping) else ():
        panel = each.get("panel_config") if isinstance(each, Mapping) else None
        if not isinstance(panel, Mapping):
            continue
        chart = chart_of(panel.get("panelDefId"), panel.get("fieldSettings"), panel.get("stringSettings"))
        if chart is not None:
            yield key, _table_of(panel.get("userQuery")) or f"{key}_table", chart


def _table_of(query: Any) -> str | None:
    """The key of the table that a chart asks for, which its query has deep inside."""
    waiting, looked = [query], 0
    while waiting and looked < 1000:
        each, looked = waiting.pop(), looked + 1
        if isinstance(each, Mapping):
            if each.get("name") == "tableKey" and isinstance(each.get("value"), str):
                return str(each["value"])
            waiting += [part for part in each.values() if isinstance(part, (Mapping, list))]
        elif isinstance(each, list):
            waiting += [part for part in each if isinstance(part, (Mapping, list))]
    return None
