"""Questions that MLflow's server and a hub answer alike: filters, orders, and calls that are refused."""

from typing import Any

T = 1_700_000_000_000

FILTERS = f"""
metrics.loss < 0.5
metrics.loss >= 0.5
metrics.loss = 0.5
metrics.loss != 0.5
metric.loss > -2
metrics.`a/b c` > 4
metrics."a/b c" <= 4.0
metrics.none > 1
metrics.loss < .3
params.lr = '0.1'
params.lr = "0.1"
param.opt != 'x'
parameters.opt LIKE 'A%'
params.opt LIKE 'a%'
params.opt ILIKE 'a%'
params.opt ilike '%DAM'
params.opt IS NULL
params.opt IS NOT NULL
tags.team = 'Red'
tag.team != 'Red'
tags.team LIKE '_ed'
tags.rare = ''
tags.rare IS NOT NULL
tags.`mlflow.runName` = 'a'
attributes.run_name = 'a'
run_name LIKE '%'
run_name != 'a'
attributes.status = 'FINISHED'
status != 'RUNNING'
attr.status = 'FAILED'
status IN ('FAILED')
start_time > {T}
attributes.start_time <= {T + 2}
end_time = {T + 50}
created > {T + 3}
attributes.user_id = 'me'
attributes.artifact_uri LIKE '%artifacts'
run_id IN ('$a', '$b')
attribute.run_id NOT IN ('$a')
run_id = '$c'
attributes.run_id IN ('$a',)
dataset.name = 'train'
datasets.digest LIKE 'd%'
dataset.context = 'training'
dataset.name IN ('train')
metrics.loss < 1 AND params.lr != '0.0'
metrics.loss < 1 and tags.team = 'Red' AND status = 'RUNNING'
metrics.loss > 'a'
metrics.loss > abc
params.lr > 1
params.lr = 1
params.lr = abc
tags.team = 5
tags.team = 'a\\'b'
tags.team = 'Red\\'
foo.bar = 'x'
foo = 'x'
status = FINISHED
start_time = 'x'
params.lr ~ '1'
metrics.loss LIKE 'x'
metrics.loss < 1 OR metrics.loss > 2
metrics.loss
<
'x'
metrics.loss <
params.lr IN ('1')
status IN ()
run_id IN ()
run_id IN (1)
metrics.loss IS NULL
status IS NULL
dataset.foo = 'x'
metrics.loss < 1; metrics.loss > 2
metrics.loss < 1 metrics.loss > 0
AND
tags.team LIKE 5
metrics.loss > 0;
metrics.loss  >   0
run_name ILIKE 'A'
tags.team = "Re'd"
metrics.loss > 0 AND metrics.loss < 1 AND run_name != 'b'
metrics.loss > +0.1
metrics.loss > -.5
metrics.loss = 5e-1
metrics.loss == 0.5
metrics.loss <> 0.5
metrics.LOSS > 0
METRICS.loss > 0
NOT metrics.loss > 1
(metrics.loss > 0)
metrics.loss BETWEEN 0 AND 1
params.'lr' = '0.1'
params.`lr` = '0.1' AND params.lr = '0.1'
params.lr = `0.1`
params.lr LIKE ''
params.lr = 'it''s'
params.none != 'x'
tags.team NOT LIKE 'R%'
tags.team IN ('Red')
tags.mlflow.runName = 'a'
attributes.Run name = 'a'
attributes.`Run name` = 'a'
attributes.lifecycle_stage = 'active'
start_time = {T}.0
start_time LIKE '17%'
end_time IS NULL
status ILIKE 'fin%'
dataset.name = 'train' AND dataset.digest = 'd1'
dataset.name = 5
.loss > 5
metrics.loss.x > 5
metrics.loss > 0 /* all */
metrics.loss > 0 -- all
run_id IN '$a'
run_id IN ('$a' '$b')
run_id NOT IN ()
metrics.loss > 0, metrics.loss < 1
tags.team='Red'AND params.opt='Adam'
metrics.loss > 1e400
metrics.loss > inf
params.opt ILIKE NULL
created IN ('x')
attributes.start_time > '5'
'a' = run_name
0 < metrics.loss
metrics.loss > 0 AND 0 < metrics.loss
tags.team LIKE '%[e]%'
metrics.loss > metrics.loss
params.lr = '0.1' AND
run_id NOT IN ('$a', '$b')
datasets.context IN ('training', 'eval')
metrics.loss < 1.2.3
metrics.loss < - 1
params.`` = '1'
tags.a.b.c = '1'
params.ü = 'x'
duration > 5
""".splitlines()

ORDERS = """
metrics.loss
metrics.loss ASC
metrics.loss DESC
metric.`a/b c` desc
metrics.none
params.lr DESC
params.opt
tags.team DESC
tags.rare
start_time
attributes.start_time DESC
run_name DESC
status
end_time
attributes.end_time DESC
user_id
created DESC
Created
loss
metrics.loss UP
metrics.loss ASC DESC
foo.bar
metrics.loss, params.lr
dataset.name
 start_time
params.lr ASC\x20
start_time  DESC
`start_time`
metrics.loss desc nulls first
''
.
DESC
`Run name`
attributes.`Run name`
tags.`mlflow.runName` DESC
metrics.'a/b c'
lifecycle_stage
source_name
METRICS.loss
""".splitlines()


def point(key: str, value: Any, step: int = 0, timestamp: int = T) -> dict[str, Any]:
    """A value as clients send it."""
    return {"key": key, "value": value, "timestamp": timestamp, "step": step}


def _batch(**fields: Any) -> tuple[str, str, Any]:
    return "POST", "runs/log-batch", {"run_id": "$a", **fields}


def _post(path: str, **fields: Any) -> tuple[str, str, Any]:
    return "POST", path, fields


def _pairs(count: int) -> list[dict[str, str]]:
    return [{"key": f"k{at}", "value": "1"} for at in range(count)]


ODD: list[tuple[str, str, Any]] = [
    *(
        _post("runs/log-metric", run_id="$odd", **point("v", value))
        for value in ("1e5", "NaN", "inf", "-Infinity", " 1")
    ),
    *(_post("runs/log-metric", run_id="$odd", **point("t", 1.0, 0, at)) for at in ("5", 0, 1e3)),
    *(_post("runs/log-metric", run_id="$odd", **point("s", 1.0, step)) for step in (1.0, "3", -5, None)),
    *(_post("runs/log-metric", run_id="$odd", **point(key, 1.0)) for key in ("ü", "a b", "a:b", "a,b", "k" * 250, "")),
    *(_post("runs/log-parameter", run_id="$odd", key=key, value="") for key in ("a", "a", "", "x" * 251)),
    *(_post("runs/set-tag", run_id="$odd", key="k", value=value) for value in ("v", "", "w" * 8001)),
    *(_post("runs/log-batch", run_id="$odd", tags=[{"key": "tag", "value": value}]) for value in ("1", "")),
    *(_post("runs/log-batch", run_id="$odd", params=[{"key": "p", "value": value}]) for value in ("6", "6", "7")),
    _post("runs/log-batch", run_id="$odd", metrics=[point("x", 1.0), point("x", 1.0)], bogus=1),
    _post("runs/log-batch", run_id="$odd", metrics=[point("k?", 1.0)], tags=[{"key": "never", "value": "kept"}]),
    *(_post("runs/update", run_id="$odd", status=status) for status in ("KILLED", "SCHEDULED", "finished", "RUNNING")),
    _post("runs/update", run_id="$odd", run_name="", end_time=-5),
    *(("GET", f"metrics/get-history?run_id=$odd&metric_key={key}", None) for key in ("v", "t", "s", "none")),
    ("GET", "runs/get?run_id=$odd", None),
    _post("experiments/search", max_results=5, filter="tags.owner != 'us' AND name LIKE '%'"),
    _post("experiments/search", max_results=5, filter="attribute.name = 'both'"),
    _post("experiments/search", max_results=5, page_token="x"),
]
"""Calls with values of other types and odd names: some are accepted, some refused; then what is kept."""

REFUSED: list[tuple[str, str, Any]] = [
    *(("GET", f"experiments/get{query}", None) for query in ("", "?experiment_id=x", "?experiment_id=99")),
    ("GET", "experiments/get-by-name?experiment_name=nope", None),
    ("GET", "experiments/get-by-name", None),
    *(_post("experiments/create", name=name) for name in ("both", "", 5, "x" * 501)),
    _post("experiments/create"),
    _post("experiments/update", experiment_id="$experiment"),
    _post("experiments/delete", experiment_id="99"),
    _post("experiments/restore", experiment_id="$experiment"),
    _post("experiments/set-experiment-tag", experiment_id="$experiment", key="a?", value="1"),
    _post("experiments/delete-experiment-tag", experiment_id="$experiment", key="none"),
    *(_post("runs/create", experiment_id=id) for id in ("99", "x", 5)),
    _post("runs/create", experiment_id="$experiment", start_time="x"),
    _post("runs/create", experiment_id="$experiment", run_name="a", tags=[{"key": "mlflow.runName", "value": "b"}]),
    *(("GET", f"runs/get{query}", None) for query in ("", "?run_id=nope", "?run_uuid=nope")),
    *(_post("runs/update", **fields) for fields in ({}, {"run_id": "nope"})),
    _post("runs/update", run_id="$a", end_time="x"),
    *(_post("runs/update", run_id="$a", status=status) for status in ([1], 99)),
    *(_post(f"runs/{call}", run_id="nope") for call in ("delete", "restore")),
    _post("runs/delete"),
    _post("runs/log-metric", run_id="$a", key="k", timestamp=T),
    _post("runs/log-metric", run_id="$a", key="k", value=1.0),
    _post("runs/log-metric", run_id="$a", value=1.0, timestamp=T),
    _post("runs/log-metric", key="k", value=1.0, timestamp=T),
    _post("runs/log-metric", run_id="nope", **point("k", 1.0)),
    _post("runs/log-metric", run_id="$j", **point("k", 1.0)),
    *(_post("runs/log-metric", run_id="$a", **point(key, 1.0)) for key in ("../k", "k?", "/k", "a//b", ".", "k" * 251)),
    _post("runs/log-metric", run_id="$a", **point("k", "abc")),
    _post("runs/log-metric", run_id="$a", **point("k", 1.5, 0, -1)),
    _batch(metrics={"a": 1}),
    *(_batch(metrics=[item]) for item in ({"value": 1, "timestamp": 1}, {"key": "a", "timestamp": 1}, {"key": "a"})),
    _batch(metrics=[{"key": "a", "value": 1}]),
    _batch(metrics=[point("a", 1.0), point("b?", 1.0)]),
    _batch(metrics=[point("a", 1.0, 0, -5)]),
    _batch(metrics=[point("a", 1.0)] * 1001),
    _batch(params=_pairs(101)),
    _batch(tags=_pairs(101)),
    _batch(metrics=[point("a", 1.0)] * 950, params=_pairs(51)),
    _batch(params=[{"value": "x"}]),
    _batch(params=[{"key": "lr", "value": "9"}]),
    _batch(params=[{"key": "q", "value": "1"}, {"key": "q", "value": "1"}]),
    _batch(params=[{"key": "k" * 251, "value": "1"}]),
    _batch(tags=[{"value": "x"}]),
    _batch(tags=[{"key": "k" * 251, "value": "1"}]),
    *(_post("runs/log-batch", run_id=run) for run in ("nope", "/x", "", "$j")),
    _post("runs/log-parameter", run_id="$a", key="lr", value="9"),
    _post("runs/log-parameter", run_id="$a", key="lr", value=5),
    _post("runs/log-parameter", run_id="$a", value="9"),
    _post("runs/log-parameter", run_id="$a", key="b?", value="9"),
    _post("runs/set-tag", run_id="$a", key="b?", value="9"),
    _post("runs/set-tag", run_id="$j", key="b", value="9"),
    _post("runs/set-tag", run_id="$a", value="9"),
    _post("runs/delete-tag", run_id="$a", key="none"),
    _post("runs/log-inputs"),
    _post("runs/log-inputs", run_id="nope"),
    _post("runs/log-inputs", run_id="$a", datasets=[{"dataset": {"name": "n" * 501, "digest": "d", "source": "s"}}]),
    _post("runs/outputs", run_id="$a"),
    _post("runs/log-model", run_id="$a", model_json="{"),
    _post("logged-models"),
    _post("logged-models/search"),
    _post("experiments/create", name="place", artifact_location="s3://bucket/path#part"),
    _post("logged-models", experiment_id="99"),
    _post("logged-models", experiment_id="$experiment", name="a/b"),
    ("GET", "logged-models/m-none", None),
    ("GET", "artifacts/list?run_id=nope", None),
    ("GET", "artifacts/list?run_id=$a&path=../x", None),
    *(
        ("GET", f"/api/2.0/mlflow-artifacts/artifacts/{path}", None)
        for path in ("none", "%2e%2e/x", "a%23b", "%252e%252e/x")
    ),
    ("GET", "/api/2.0/mlflow-artifacts/artifacts/%2fetc/passwd", None),
    ("GET", "/api/2.0/mlflow-artifacts/artifacts?path=../..", None),
]
