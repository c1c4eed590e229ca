"""Dashboards: list, read, save and delete them, and validate their YAML."""

from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.hub.dashboards.dashboard import BUILTIN, LONGEST, Dashboard, Dashboards, Mistake, Source, parse
from stepscope.hub.questions.toolbox.endpoint import Endpoint, MistakeJson, Param, Reader, Replaced, decode_body
from stepscope.hub.refusals import bad_request, forbidden, not_found
from stepscope.hub.texts import version_of


class NewDashboard(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request with a dashboard."""

    yaml: Annotated[str, Meta(extra_json_schema={"maxLength": LONGEST})]
    version: Replaced = None


class DashboardName(TypedDict):
    """The name of a dashboard."""

    name: str
    builtin: bool


class DashboardEntry(DashboardName):
    """A dashboard in the list of all."""

    title: str
    text: str
    charts: int
    mistake: MistakeJson | None


class DashboardList(TypedDict):
    """The dashboards: the built-in ones, then those that were saved."""

    dashboards: list[DashboardEntry]


class CheckedDashboard(TypedDict):
    """A dashboard as data, or the mistake in its text."""

    dashboard: Annotated[Dashboard | None, Meta(description="The dashboard as data; null when the text is not valid.")]
    mistake: MistakeJson | None


class DashboardJson(DashboardName, CheckedDashboard):
    """A dashboard, as text and as data."""

    yaml: str
    version: str


class DeletedDashboard(TypedDict):
    """A dashboard that was deleted."""

    name: str
    deleted: bool


_NAME = Param("name", "name", "the name of a dashboard", required=True, place="path")


@Endpoint("/api/dashboards", "listDashboards")
def listing(reader: Reader, given: dict[str, Any]) -> DashboardList:
    """The dashboards: the built-in ones, then those that were saved."""
    known = _known(reader)
    found = [source for name in known.names() if (source := known.read(name)) is not None]
    return {"dashboards": [_described(source) for source in found]}


def _described(source: Source) -> DashboardEntry:
    try:
        made = parse(source.text)
    except Mistake as mistake:
        return {**_who(source), "title": source.name, "text": "", "charts": 0, "mistake": _mistake_json(mistake)}
    return {
        **_who(source),
        "title": made.title,
        "text": made.text.split("\n", 1)[0][:200],
        "charts": len(made.charts),
        "mistake": None,
    }


@Endpoint("/api/dashboards/{name}", "readDashboard", (_NAME,))
def one(reader: Reader, given: dict[str, Any]) -> DashboardJson:
    """One dashboard, as text and as data."""
    source = _known(reader).read(given["name"])
    if source is None:
        raise not_found(f"there is no dashboard {given['name']}")
    return {**_who(source), "yaml": source.text, "version": version_of(source.text), **_checked(source.text)}


@Endpoint("/api/dashboards/{name}", "keepDashboard", (_NAME,), method="PUT", body=NewDashboard)
def save(reader: Reader, given: dict[str, Any]) -> DashboardJson:
    """Save a dashboard; invalid YAML is refused with the line."""
    name, wanted = _changeable(reader, given), _body(given)
    try:
        parse(wanted.yaml)
    except Mistake as mistake:
        raise bad_request(f"line {mistake.line}: {mistake}") from None
    try:
        _known(reader).write(name, wanted.yaml, wanted.version)
    except OSError as error:
        raise bad_request(f"the dashboard cannot be saved: {error.strerror or error}") from None
    saved: DashboardJson = one.answer(reader, given)
    return saved


@Endpoint("/api/dashboards/{name}", "deleteDashboard", (_NAME,), method="DELETE")
def delete(reader: Reader, given: dict[str, Any]) -> DeletedDashboard:
    """Delete a dashboard that was saved."""
    name = _changeable(reader, given)
    if not _known(reader).delete(name):
        raise not_found(f"there is no dashboard {name}")
    return {"name": name, "deleted": True}


@Endpoint("/api/dashboards", "checkDashboard", method="POST", body=NewDashboard)
def check(reader: Reader, given: dict[str, Any]) -> CheckedDashboard:
    """Validate the YAML of a dashboard: the dashboard as data, or the mistake. Nothing is saved."""
    return _checked(_body(given).yaml)


def _checked(text: str) -> CheckedDashboard:
    try:
        return {"dashboard": parse(text), "mistake": None}
    except Mistake as mistake:
        return {"dashboard": None, "mistake": _mistake_json(mistake)}


def _known(reader: Reader) -> Dashboards:
    if reader.dashboards is None:
        raise not_found("dashboards need a running hub: start one with `stepscope hub`")
    return reader.dashboards


def _changeable(reader: Reader, given: dict[str, Any]) -> str:
    name: str = given["name"]
    if reader.project is not None:
        raise forbidden("dashboards are shared by all projects, and this token is limited to one")
    if name in BUILTIN:
        raise bad_request(f"{name} is built in: save yours under another name")
    return name


def _body(given: dict[str, Any]) -> NewDashboard:
    return decode_body(NewDashboard, given["body"], '{"yaml": "title: ..."}')


def _who(source: Source) -> DashboardName:
    return {"name": source.name, "builtin": source.builtin}


def _mistake_json(mistake: Mistake) -> MistakeJson:
    return {"line": mistake.line, "column": mistake.column, "message": str(mistake)}
