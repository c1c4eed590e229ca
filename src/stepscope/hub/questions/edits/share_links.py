"""Links that show one run or one project, to read only, until they end: make, list and revoke them."""

from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import quote

import msgspec
from msgspec import Meta

from stepscope.alerts.rule import RuleError, read_duration
from stepscope.hub.questions.toolbox.endpoint import LONGEST_TEXT, Endpoint, Param, Reader, decode_body
from stepscope.hub.refusals import bad_request, conflict, not_found
from stepscope.hub.security.tokens import Token, Tokens
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.model.records import Seconds

DEFAULT = "7d"
MAX_LINKS = 1000
_EXAMPLE = '{"kind": "run", "id": "...", "for": "7d"}'


class NewShare(msgspec.Struct, forbid_unknown_fields=True, rename={"duration": "for"}):
    """The body of a request that makes a link."""

    kind: Literal["run", "project"]
    id: Annotated[str, Meta(max_length=LONGEST_TEXT, description="The id of the run, or the name of the project.")]
    duration: Annotated[
        str | float,
        Meta(
            description="How long it shows it, such as 12h or 30d; at most a year.",
            extra_json_schema={"type": "string", "pattern": "^[1-9][0-9]?[smhd]$"},
        ),
    ] = DEFAULT


class ShareJson(TypedDict):
    """A link; its secret is not stored."""

    id: str
    run: str | None
    project: str | None
    name: Annotated[str, Meta(description="What it shows, and who made it.")]
    created: Seconds
    expires: Seconds


class MadeShare(ShareJson):
    """A link that was made."""

    path: Annotated[str, Meta(description="What follows the address of the hub, with the secret; returned only once.")]


class ShareList(TypedDict):
    """The links that have not ended, the newest first."""

    links: list[ShareJson]


class RevokedShare(TypedDict):
    """A link that was revoked."""

    id: str
    revoked: bool


_ID = Param("id", "text", "the id of a link", required=True, place="path")
_RUN = Param("run", "text", "that show this run")
_PROJECT = Param("project", "text", "that show this project")


@Endpoint("/api/shares", "makeShareLink", method="POST", body=NewShare)
def make(reader: Reader, given: dict[str, Any]) -> MadeShare:
    """Make a link that shows one run or one project, to read only, until it ends: a token in the part of the
    address that browsers do not send.
    """
    wanted = decode_body(NewShare, given["body"], _EXAMPLE)
    seconds = _seconds(wanted.duration)
    tokens = _tokens(reader)
    if not any(token.allows("admin") for token in tokens.all()):
        raise conflict(
            "whoever reaches this hub can read all of it, so a link keeps nobody out: share the address of the page, "
            "or create a token first (stepscope hub token create --scope admin)"
        )
    if len(_links(reader, tokens)) >= MAX_LINKS:
        raise conflict(f"there are {MAX_LINKS} links: revoke some first")
    by = f", by {reader.who}" if reader.who else ""
    if wanted.kind == "run":
        row = reader.recorded(wanted.id)
        token, text = tokens.create(
            ["share"], project=row.project, run=row.id, seconds=seconds, name=f"link to {row.id}{by}"
        )
        return {**_shape(token), "path": f"#/share/{text}/{quote(row.id, safe='')}"}
    project = _project(reader, wanted.id)
    token, text = tokens.create(["read"], project=project, seconds=seconds, name=f"link to {project}{by}")
    return {**_shape(token), "path": f"#/share/{text}?project={quote(project, safe='')}"}


@Endpoint("/api/shares", "listShareLinks", (_RUN, _PROJECT))
def listing(reader: Reader, given: dict[str, Any]) -> ShareList:
    """The links that have not ended, the newest first."""
    found = [_shape(token) for token in reversed(_links(reader, _tokens(reader)))]
    wanted = [
        each
        for each in found
        if given["run"] in (None, each["run"])
        and (given["project"] is None or (each["run"], each["project"]) == (None, given["project"]))
    ]
    return {"links": wanted}


@Endpoint("/api/shares/{id}", "revokeShareLink", (_ID,), method="DELETE")
def revoke(reader: Reader, given: dict[str, Any]) -> RevokedShare:
    """Revoke a link: whoever opened it sees nothing more."""
    tokens = _tokens(reader)
    if given["id"] not in {token.id for token in _links(reader, tokens)} or not tokens.revoke(given["id"]):
        raise not_found(f"there is no link {given['id'][:80]!r}")
    return {"id": given["id"], "revoked": True}


def _tokens(reader: Reader) -> Tokens:
    if reader.tokens is None:
        raise not_found("links need a running hub: start one with `stepscope hub`")
    return reader.tokens


def _links(reader: Reader, tokens: Tokens) -> list[Token]:
    """The tokens that are links, of what the client may see, the oldest first."""
    return [token for token in tokens.lasting() if _is_link(token) and reader.project in (None, token.project)]


def _is_link(token: Token) -> bool:
    of_project = token.scopes == ("read",) and token.project is not None
    return token.expires is not None and (token.run is not None or of_project)


def _seconds(given: str | float) -> float:
    try:
        lasts = read_duration("for", given)
    except RuleError as error:
        raise bad_request(f"send {_EXAMPLE}: {error}") from None
    if lasts.seconds <= 0:
        raise bad_request("for must be a duration such as 7d")
    return lasts.seconds


def _project(reader: Reader, name: str) -> str:
    if reader.project not in (None, name) or not list_runs(reader.engine, project=name):
        raise not_found(f"there is no project {name[:200]!r}")
    return name


def _shape(token: Token) -> ShareJson:
    return {
        "id": token.id,
        "run": token.run,
        "project": None if token.run is not None else token.project,
        "name": token.name,
        "created": token.created,
        "expires": token.expires,
    }
