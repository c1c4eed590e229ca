"""Calls of MLflow's model registry that its server and a hub answer alike."""

from typing import Any

Request = tuple[str, str, Any]


def _post(path: str, **fields: Any) -> Request:
    return "POST", path, fields


def _delete(path: str, **fields: Any) -> Request:
    return "DELETE", path, fields


def _patch(path: str, **fields: Any) -> Request:
    return "PATCH", path, fields


def _get(path: str) -> Request:
    return "GET", path, None


TAGS = [{"key": "team", "value": "Red"}, {"key": "b", "value": "2"}]
INSIDE = "mlflow-artifacts:/$registry/$registered/artifacts/model"

LIFE: list[Request] = [
    _post("registered-models/create", name="cats", description="of cats", tags=TAGS),
    _post("registered-models/create", name="dogs"),
    _post("registered-models/create", name="a b", tags=[{"key": "team", "value": "blue"}]),
    _get("registered-models/get?name=cats"),
    _post("model-versions/create", name="cats", source=INSIDE, run_id="$registered", run_link="http://link", tags=TAGS),
    _post("model-versions/create", name="cats", source=INSIDE, run_id="$registered", description="second"),
    _post("model-versions/create", name="cats", source="s3://bucket/model"),
    _post("model-versions/create", name="cats", source="models:/cats/1"),
    _post("model-versions/create", name="dogs", source="runs:/$registered/model", run_id="$registered"),
    _post("model-versions/create", name="dogs", source="$place/weights", model_id="$logged"),
    _get("model-versions/get?name=cats&version=1"),
    _get("model-versions/get-download-uri?name=cats&version=4"),
    _get("model-versions/get-download-uri?name=cats&version=3"),
    _get("model-versions/get-download-uri?name=dogs&version=1"),
    _post("model-versions/create", name="dogs", source="runs:/of-another-server/model", run_id="of-another-server"),
    _get("model-versions/get-download-uri?name=dogs&version=3"),
    _post("model-versions/create", name="dogs", source="runs:/$registered", run_id="$registered"),
    _get("logged-models/$logged"),
    _post("registered-models/alias", name="cats", alias="champion", version="1"),
    _post("registered-models/alias", name="cats", alias="other-1", version="1"),
    _post("registered-models/alias", name="cats", alias="champion", version="2"),
    _get("registered-models/alias?name=cats&alias=champion"),
    _get("registered-models/alias?name=cats&alias=Latest"),
    _get("model-versions/get?name=cats&version=2"),
    _delete("registered-models/alias", name="cats", alias="other-1"),
    _delete("registered-models/alias", name="cats", alias="other-1"),
    _post("model-versions/transition-stage", name="cats", version="1", stage="production"),
    _post(
        "model-versions/transition-stage",
        name="cats",
        version="2",
        stage="Production",
        archive_existing_versions=True,
    ),
    _get("model-versions/get?name=cats&version=1"),
    _post("model-versions/transition-stage", name="cats", version="3", stage="STAGING"),
    _post("registered-models/get-latest-versions", name="cats", stages=["Production"]),
    _post("registered-models/get-latest-versions", name="cats", stages=["none"]),
    _get("registered-models/get-latest-versions?name=cats&stages=staging"),
    _post("registered-models/get-latest-versions", name="a b"),
    _post("registered-models/set-tag", name="cats", key="team", value="green"),
    _post("registered-models/set-tag", name="cats", key="c.d/e", value=""),
    _delete("registered-models/delete-tag", name="cats", key="b"),
    _delete("registered-models/delete-tag", name="cats", key="none"),
    _post("model-versions/set-tag", name="cats", version="1", key="team", value="x" * 5001),
    _post("model-versions/set-tag", name="cats", version="1", key="team", value="pink"),
    _delete("model-versions/delete-tag", name="cats", version="1", key="b"),
    _delete("model-versions/delete-tag", name="cats", version="1", key="b"),
    _patch("registered-models/update", name="cats", description="better"),
    _patch("registered-models/update", name="cats"),
    _patch("model-versions/update", name="cats", version="1", description="first"),
    _get("model-versions/get?name=cats&version=1"),
    _patch("model-versions/update", name="cats", version="1"),
    _post("registered-models/rename", name="dogs", new_name="hounds"),
    _get("registered-models/get?name=dogs"),
    _get("model-versions/get?name=hounds&version=1"),
    _delete("model-versions/delete", name="cats", version="4"),
    _get("model-versions/get?name=cats&version=4"),
    _post("model-versions/create", name="cats", source="s3://bucket/model"),
]
"""Models and versions made, named, moved, tagged, renamed and deleted, in this order."""

ASKED: list[Request] = [
    *(_get(f"registered-models/{call}") for call in ("get", "get?name=", "get?name=none", "get?name=a%2Fb")),
    *(_post("registered-models/create", name=name) for name in ("", "cats", " ", "a/b", "a:b", ".", "..", 5)),
    _post("registered-models/create", name="tagged", tags=[{"key": "a?", "value": "1"}]),
    _post("registered-models/create", name="tagged", tags=[{"key": "k" * 251, "value": "1"}]),
    _post("registered-models/create", name="tagged", tags="x"),
    _post("registered-models/rename", name="cats"),
    _post("registered-models/rename", name="cats", new_name="hounds"),
    _post("registered-models/rename", name="cats", new_name=" "),
    _post("registered-models/rename", name="none", new_name="more"),
    _patch("registered-models/update", name="none", description="x"),
    _delete("registered-models/delete", name="none"),
    _delete("registered-models/delete"),
    _post("registered-models/set-tag", name="cats", value="1"),
    _post("registered-models/set-tag", name="cats", key="a?", value="1"),
    _post("registered-models/set-tag", name="none", key="a", value="1"),
    _post("registered-models/set-tag", name="cats", key="a", value="x" * 100_001),
    _delete("registered-models/delete-tag", name="none", key="a"),
    _delete("registered-models/delete-tag", name="cats", key="a?"),
    *(_post("registered-models/alias", name="cats", alias=alias, version="1") for alias in ("", "a b", "latest", "v1")),
    _post("registered-models/alias", name="cats", alias="x" * 256, version="1"),
    _post("registered-models/alias", name="cats", alias="x"),
    _post("registered-models/alias", name="cats", alias="x", version="99"),
    _post("registered-models/alias", name="cats", alias="x", version="one"),
    _get("registered-models/alias?name=cats&alias=none"),
    _get("registered-models/alias?name=none&alias=none"),
    _get("registered-models/alias?name=a%20b&alias=latest"),
    _get("registered-models/alias?name=cats"),
    _post("registered-models/get-latest-versions", name="none"),
    _post("registered-models/get-latest-versions", name="cats", stages=["Best"]),
    _post("registered-models/get-latest-versions", name="cats", stages="x"),
    _post("model-versions/create", name="cats"),
    _post("model-versions/create", source="s3://bucket/model"),
    _post("model-versions/create", name="none", source="s3://bucket/model"),
    *(
        _post("model-versions/create", name="cats", source=source)
        for source in ("/etc/passwd", "s3://bucket/../x", "s3://b/%2e%2e/x", "models:/none/1", "models:/cats/99")
    ),
    *(_post("model-versions/create", name="cats", source=source) for source in ("models:/", "models://host/cats/1")),
    *(_post("model-versions/create", name="cats", source=f"models:/{of}") for of in ("cats@none", "$logged", "a/b/c")),
    _post("model-versions/create", name="cats", source=INSIDE),
    _post("model-versions/create", name="cats", source=INSIDE, run_id="none"),
    _post("model-versions/create", name="cats", source="mlflow-artifacts:/$registry/x/artifacts", run_id="$registered"),
    _post("model-versions/create", name="cats", source="runs:/none/model", run_id="$registered"),
    _post("model-versions/create", name="cats", source="runs:/$registered/model"),
    _post("model-versions/create", name="cats", source="runs://host/$registered/model", run_id="$registered"),
    _post("model-versions/create", name="cats", source="runs:/x/../y", run_id="x"),
    _post("model-versions/create", name="cats", source="runs:/x/%2e%2e/y", run_id="x"),
    _post("model-versions/create", name="cats", source=INSIDE, model_id="$logged"),
    _post("model-versions/create", name="cats", source="$place", model_id="none"),
    _post("model-versions/create", name="cats", source="s3://b/m", tags=[{"key": "a?", "value": "1"}]),
    *(_get(f"model-versions/get{query}") for query in ("", "?name=cats", "?name=cats&version=x", "?name=no&version=1")),
    *(
        _get(f"model-versions/get?name=cats&version={text}")
        for text in ("the-newest-one-of-them", "9" * 30, "9" * 5000)
    ),
    _get("model-versions/get-download-uri?name=cats&version=99"),
    _patch("model-versions/update", name="cats", version="99", description="x"),
    _post("model-versions/transition-stage", name="cats", version="1"),
    _post("model-versions/transition-stage", name="cats", version="1", stage="Best"),
    _post("model-versions/transition-stage", name="cats", version="99", stage="Staging"),
    _delete("model-versions/delete", name="cats", version="99"),
    _delete("model-versions/delete", name="cats", version="x"),
    _post("model-versions/set-tag", name="cats", version="1", value="x"),
    _post("model-versions/set-tag", name="cats", version="99", key="a", value="x"),
    _post("model-versions/set-tag", name="cats", version="1", key="a?", value="x"),
    _delete("model-versions/delete-tag", name="cats", version="99", key="a"),
    _post("model-versions/create", name="cats", source="x", tags=[{"key": "mlflow.prompt.is_prompt", "value": "true"}]),
]
"""What is refused, and questions about what is there after LIFE."""

MODEL_FILTERS = """
name = 'cats'
name != 'cats'
name LIKE '%a%'
name like 'C%'
name ILIKE 'C%'
name IN ('cats', 'hounds')
name NOT IN ('cats')
attribute.name = "cats"
tags.team = 'green'
tag.team != 'green'
tags.`team` LIKE 'b%'
tags.team = 'green' AND name = 'cats'
tags.`c.d/e` = ''
tags.none = 'x'
tags.`mlflow.prompt.is_prompt` = 'true'
tags.`mlflow.prompt.is_prompt` != 'true'
tags.`mlflow.prompt.is_prompt` = 'false'
name
name = cats
name = 5
name > 'a'
name = 'a' OR name = 'b'
name = 'a'; name = 'b'
foo = 'x'
foo.bar = 'x'
`name` = 'cats'
name IN ()
name IN (1)
name IN 'cats'
tags.team IN ('green')
tags.team > 'a'
tags.team IS NULL
tags.team = 5
tags.team
run_id = 'x'
creation_timestamp > 5
'cats' = name
""".splitlines()

VERSION_FILTERS = """
name = 'cats'
name LIKE '%a%'
run_id = '$registered'
run_id != '$registered'
run_id IN ('$registered', 'x')
run_id NOT IN ('x')
name IN ('cats')
source_path = 's3://bucket/model'
source_path LIKE 's3%'
source_path IN ('x')
version_number = 1
version_number > 1
version_number <= 2
version_number != '1'
version_number = 1.5
version_number LIKE '1'
version_number = 'x'
version_number IN ('1')
tags.team = 'pink'
tags.team = 'pink' AND name = 'cats'
tags.team > 'a'
tags.`mlflow.prompt.is_prompt` = 'true'
current_stage = 'Staging'
name = 5
run_id > 'a'
foo = 'x'
foo.bar = 'x'
name = 'cats' AND
name = cats
version_number > -1
version_number = 99999999999999999999999
""".splitlines()

MODEL_ORDERS = """
name
name DESC
timestamp
timestamp DESC
last_updated_timestamp ASC
creation_timestamp
foo
name UP
name ASC DESC
tags.team
attribute.name
`name` DESC
""".splitlines()

VERSION_ORDERS = """
name
name DESC
version_number
version_number DESC
creation_timestamp DESC
last_updated_timestamp ASC
timestamp
attribute.name DESC
tags.team
foo
name UP
run_id
""".splitlines()
