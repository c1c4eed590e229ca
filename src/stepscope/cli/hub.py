"""`stepscope hub` (also `ui`): receive, store and show the records of all runs; `hub token`: access tokens."""

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepscope import __version__
from stepscope.cli.options import Commands, add_command, home_of, print_answer
from stepscope.model.dialects import hub_options
from stepscope.model.errors import ConfigError
from stepscope.model.formatting import size as shown

if TYPE_CHECKING:
    from stepscope.hub.security.tokens import Tokens

_NEEDED = "the hub needs more packages: pip install 'stepscope[hub]'"
_TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZES |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SCOPES = ("ingest", "read", "control", "admin")


def add(commands: Commands) -> None:
    """Register the command, its alias and its tokens."""
    text = "receive, store and show the records of all runs"
    made = add_command(commands, "hub", text, command, json=False, aliases=["ui"])
    made.add_argument(
        "--store", metavar="ADDRESS", help="a ClickHouse server instead of a folder: clickhouse://... (STEPSCOPE_STORE)"
    )
    made.add_argument(
        "--advertise", default="", metavar="URL", help="where other hubs on the same store reach this one"
    )
    made.add_argument("--host", default="127.0.0.1", help="the address to bind; other than loopback needs a token")
    made.add_argument("--port", type=int, default=4318, help="HTTP: all dialects, JSON API and page (4318)")
    made.add_argument("--keep", type=duration, metavar="TIME", help="delete runs older than this: 90d, 12h")
    made.add_argument(
        "--max-bytes", type=size(10**6), metavar="SIZE", help="delete the oldest runs when the store is larger: 50GB"
    )
    made.add_argument(
        "--blobs", default="", metavar="URL", help="a bucket for the files that trainers upload: s3://bucket/prefix"
    )
    waiting = "the most bytes that wait for the store (4GiB)"
    made.add_argument("--journal-bytes", type=size(32 * 2**20), default=4 * 2**30, metavar="SIZE", help=waiting)
    made.add_argument(
        "--priority",
        choices=("low", "normal"),
        help="low gives way to training on the same machine (STEPSCOPE_HUB_PRIORITY, low)",
    )
    made.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve TLS with this certificate (PEM)")
    made.add_argument("--tls-key", type=Path, metavar="FILE", help="the private key of the certificate (PEM)")
    made.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers may reach this hub, besides its address",
    )
    made.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        type=origin,
        metavar="URL",
        help="an origin that may call the JSON API from a browser (CORS)",
    )
    _add_dialects(made)
    _add_tokens(made)


def _add_dialects(made: argparse.ArgumentParser) -> None:
    """Add the options that dialects declare."""
    for option in hub_options():
        settings: dict[str, Any] = {"help": option.help}
        if option.switch:
            settings["action"] = "store_true"
        elif option.several:
            settings |= {"action": "append", "default": [], "metavar": option.metavar}
        else:
            kind = int if option.port else str
            settings |= {"default": option.default, "metavar": option.metavar, "type": kind}
        made.add_argument(option.flag, **settings)


def _add_tokens(made: argparse.ArgumentParser) -> None:
    parts = made.add_subparsers(title="more", metavar="[token ...]")
    token = parts.add_parser("token", help="manage access tokens", description="manage access tokens")
    verbs = token.add_subparsers(metavar="create|list|revoke", required=True)
    create = verbs.add_parser("create", help="create a token and print it once")
    create.add_argument("--scope", action="append", choices=_SCOPES, help="the scope (ingest)")
    create.add_argument("--project", help="limit the token to this project")
    create.add_argument("--name", default="", help="a label, such as its owner")
    create.add_argument("--rate", type=rate, metavar="N", help="requests per second")
    create.set_defaults(command=create_token)
    listing = verbs.add_parser("list", help="list the tokens")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(command=list_tokens)
    revoke = verbs.add_parser("revoke", help="revoke a token")
    revoke.add_argument("id", help="its id, as `list` shows it")
    revoke.set_defaults(command=revoke_token)
    for verb in (create, listing, revoke):
        verb.add_argument("--home", type=Path, default=argparse.SUPPRESS, help="the folder of all journals")


def command(args: argparse.Namespace) -> int:
    """Run the hub until SIGTERM or Ctrl-C."""
    from stepscope.hub.serving.priority import LOW, chosen_priority

    try:
        from stepscope.hub.home_store import store_address
        from stepscope.hub.questions.routes import mount
        from stepscope.hub.service import HubOptions
        from stepscope.hub.serving.serve import serve
    except ImportError as error:
        raise ConfigError(f"{_NEEDED} (missing: {error.name})") from error
    if (args.tls_cert is None) != (args.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key belong together: give both or none")
    options = HubOptions(
        home=home_of(args),
        store=store_address(args.store),
        advertise=args.advertise,
        host=args.host,
        port=args.port,
        tls=(args.tls_cert, args.tls_key) if args.tls_cert is not None else None,
        allow_hosts=tuple(args.allow_host),
        allow_origins=tuple(args.allow_origin),
        keep_seconds=args.keep,
        max_bytes=args.max_bytes,
        journal_bytes=args.journal_bytes,
        blobs=args.blobs,
        yields=chosen_priority(args.priority) == LOW,
        dialects={option.name: getattr(args, option.name.replace("-", "_")) for option in hub_options()},
    )
    return serve(options, _print_line, lambda hub: mount(hub, __version__))


def _tokens(args: argparse.Namespace) -> "Tokens":
    from stepscope.hub.home import tokens_path
    from stepscope.hub.security.tokens import Tokens

    return Tokens(tokens_path(home_of(args)))


def create_token(args: argparse.Namespace) -> int:
    """Make a token."""
    scopes = args.scope or ["ingest"]
    token, text = _tokens(args).create(scopes, project=args.project, name=args.name, requests=args.rate)
    print(text)
    print(f"token {token.id} ({', '.join(token.scopes)}): shown only once", file=sys.stderr)
    return 0


def list_tokens(args: argparse.Namespace) -> int:
    """List the tokens, never their secrets."""
    found = _tokens(args).all()
    lines = []
    for each in found:
        made = time.strftime("%Y-%m-%d", time.localtime(each.created))
        end = f"  until {time.strftime('%Y-%m-%d %H:%M', time.localtime(each.expires))}" if each.expires else ""
        lines.append(f"{each.id}  {','.join(each.scopes):<18} {each.project or '*':<16} {made}  {each.name}{end}")
    answer = [{"id": each.id, "scopes": each.scopes, "project": each.project, "name": each.name,
               "created": each.created, "rate": each.requests, "run": each.run,
               "expires": each.expires} for each in found]  # fmt: skip
    print_answer(args, answer, lines or "no tokens")
    return 0


def revoke_token(args: argparse.Namespace) -> int:
    """Revoke a token; a running hub refuses it within a second."""
    if not _tokens(args).revoke(args.id):
        raise ConfigError(f"there is no token {args.id!r}; `stepscope hub token list` shows them")
    print(f"revoked {args.id}")
    return 0


def duration(text: str) -> float:
    """Read a time such as 90d."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: use 90d, 12h or 30m")
    return float(found[1]) * _TIMES[found[2]]


def size(least: int) -> Callable[[str], int]:
    """A reader of sizes such as 50GB."""

    def read(text: str) -> int:
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", text.lower())
        if found is None or found[2] not in _SIZES:
            raise argparse.ArgumentTypeError(f"{text!r} is not a size: use 50GB or 512MiB")
        number = int(float(found[1]) * _SIZES[found[2]])
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is too small: at least {shown(least)}")
        return number

    return read


def rate(text: str) -> float:
    """Read a number of requests per second."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: use a number of requests per second above 0")
    return number


def origin(text: str) -> str:
    """Read an origin as browsers send it."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an origin: use https://HOST or http://HOST:PORT")
    return text.rstrip("/")


def _print_line(text: str) -> None:
    print(text, flush=True)
