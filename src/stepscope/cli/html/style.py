"""How a report looks: light or dark as the reader's system is, readable on a phone and on paper."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #656d76; --paper: #ffffff; --card: #f6f8fa; --line: #d0d7de;
  --blue: #0969da; --band: #0969da33; --red: #cf222e; --amber: #9a6700; --green: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #8d96a0; --paper: #0d1117; --card: #161b22;
  --line: #30363d; --blue: #58a6ff; --band: #58a6ff40; --red: #ff7b72; --amber: #d29922; --green: #3fb950; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: .95rem; margin: 1rem 0 .25rem; }
.soft { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; }
.status-finished, .status-running { color: var(--green); } .status-failed, .status-crashed { color: var(--red); }
ol.findings { list-style: none; padding: 0; }
ol.findings li { border-left: 4px solid var(--amber); background: var(--card); margin: .4rem 0; padding: .4rem .75rem;
  overflow-wrap: anywhere; }
ol.findings li.ERROR, ol.findings li.FATAL { border-color: var(--red); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr)); gap: .75rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; }
figcaption { display: flex; justify-content: space-between; gap: .5rem; font-size: .85rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 10px system-ui, sans-serif; }
svg .band { fill: var(--band); stroke: none; } svg .mean { fill: none; stroke: var(--blue); stroke-width: 1.4; }
svg .dot { fill: var(--blue); } svg .bad { stroke: var(--red); stroke-width: 1.5; } svg .flag { stroke: var(--amber);
  stroke-dasharray: 3 3; } svg .axis { stroke: var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.odd td { color: var(--red); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-x: auto;
  font: 12px/1.5 ui-monospace, SFMono-Regular, Menlo, monospace; }
pre .ERROR, pre .FATAL { color: var(--red); } pre .WARN { color: var(--amber); }
details { margin: .5rem 0; } summary { cursor: pointer; }
@media print { body { max-width: none; } details > * { display: block; } }
"""
