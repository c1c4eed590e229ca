"""The document of a view in a notebook: the page's own modules and styles in one text, which fetches nothing."""

import base64
import gzip
import json
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

import stepscope.hub

WEB = Path(stepscope.hub.__file__).parent / "web"
ENTRY = "notebook/view.js"
_STYLES = ("vendor/uplot.css", "theme.css", "parts.css", "charts/charts.css", "notebook/notebook.css")
_IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(?\s*)"(\.[^"\n]*)\"""")
_FONT = re.compile(r"@font-face \{[^{}]*\}")
_POLICY = "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data:"


def document(view: dict[str, Any]) -> str:
    """Return a view as HTML for a frame; `showRuns(view)` of its window shows another one."""
    return _around()[0] + _embedded(view) + _around()[1]


def frame(view: dict[str, Any], height: int) -> str:
    """Return a view as an element that holds all it needs, for a cell."""
    inside = document(view).replace("&", "&amp;").replace('"', "&quot;")
    style = f"border:0;width:100%;height:{height}px"
    return f'<iframe title="Stepscope" style="{style}" srcdoc="{inside}"></iframe>'


def _embedded(value: Any) -> str:
    """Return JSON that can stand in a script."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


@cache
def _around() -> tuple[str, str]:
    """Return what is before and after the view: the same for all."""
    styles = "\n".join(_FONT.sub("", (WEB / name).read_text(encoding="utf-8")) for name in _STYLES)
    packed = gzip.compress(json.dumps(modules(ENTRY)).encode(), mtime=0)
    head = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Stepscope</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{styles}</style></head>'
        f'<body><div id="shown"></div><script type="application/json" id="view">'
    )
    start = (WEB / "notebook" / "start.js").read_text(encoding="utf-8")
    data = f'</script><script type="text/plain" id="modules">{base64.b64encode(packed).decode()}'
    return head, f"{data}</script><script>{start}</script></body></html>"


def modules(entry: str) -> dict[str, str]:
    """Return a module of the page and all it imports, by name; they import each other as `page/NAME`."""
    found: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        folder = posixpath.dirname(name)
        text = (WEB / name).read_text(encoding="utf-8")

        def resolved(match: "re.Match[str]", folder: str = folder) -> str:
            target = posixpath.normpath(posixpath.join(folder, match[2]))
            waiting.append(target)
            return f'{match[1]}"page/{target}"'

        found[name] = _IMPORT.sub(resolved, text)
    return found
