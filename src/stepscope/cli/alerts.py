"""`stepscope alerts check|list|test|silence`: rules checked and tested, and what fires."""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, add_to_verbs, home_of, print_answer
from stepscope.hub.client import open_client, resolve_run
from stepscope.model.errors import ConfigError
from stepscope.model.formatting import amount, duration

if TYPE_CHECKING:
    from stepscope.alerts.rule_file import Rules

FILES = ("alerts.yaml", "alerts-page.yaml")
_API = "/api/alerts"


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "alerts", "check and test alert rules, list and silence alerts", show_list)
    made.set_defaults(all=False, rules=False)
    verbs = made.add_subparsers(metavar="check|list|test|silence")
    check = verbs.add_parser("check", help="check rule files; errors have line, column and the fix")
    check.add_argument("file", nargs="*", type=Path, help="the files; default: those of the home folder")
    check.set_defaults(command=check_files)
    listed = verbs.add_parser("list", help="list open alerts, or the rules")
    listed.add_argument("--all", action="store_true", help="include resolved alerts")
    listed.add_argument("--rules", action="store_true", help="list the active rules instead")
    listed.set_defaults(command=show_list)
    test = verbs.add_parser("test", help="run the tests in a file of rules, or replay a stored run")
    test.add_argument("file", type=Path, help="a file with tests, or with rules for --run")
    test.add_argument("--run", help="a run id, the beginning of one, a name, or `latest`: what would have fired")
    test.set_defaults(command=test_rules)
    silence = verbs.add_parser("silence", help="silence some alerts for a while; without options, list silences")
    for name in ("rule", "run", "key"):
        silence.add_argument(f"--{name}", help=f"a pattern of {name}s; * matches anything")
    silence.add_argument("--for", dest="duration", default="2h", help="how long, such as 30m or 2h (2h)")
    silence.add_argument("--why", default="", help="the reason, shown to others")
    silence.add_argument("--remove", metavar="ID", help="remove a silence, or a mark of an expected alert")
    silence.set_defaults(command=silence_alerts)
    add_to_verbs(verbs)


def check_files(args: argparse.Namespace) -> int:
    """Check files; 0 when all are right."""
    paths: list[Path] = args.file or [path for name in FILES if (path := home_of(args) / name).exists()]
    found = [_checked(path) for path in paths]
    lines = [text.clean(_checked_line(each)) for each in found]
    print_answer(args, found, lines or f"there is no {FILES[0]} in {home_of(args)}: the built-in packs are active")
    return 0 if all(each["mistake"] is None for each in found) else 1


def _checked_line(each: dict[str, Any]) -> str:
    if (mistake := each["mistake"]) is None:
        return f"{each['file']}: {amount(each['rules'], 'rule')}, {amount(each['notifiers'], 'notifier')}"
    return f"{each['file']}:{mistake['line']}:{mistake['column']}: {mistake['message']}"


def _checked(path: Path) -> dict[str, Any]:
    from stepscope.alerts.notifiers import registry
    from stepscope.alerts.rule_file import Mistake

    try:
        rules = _rules_of(path)
        for name, given in rules.notifiers.items():
            try:
                registry.read(name, given)
            except ConfigError as error:
                raise Mistake(str(error), *rules.places.get(name, (1, 1))) from None
    except Mistake as error:
        mistake = {"line": error.line, "column": error.column, "message": str(error)}
    except ConfigError as error:
        mistake = {"line": 1, "column": 1, "message": str(error)}
    else:
        return {"file": str(path), "rules": len(rules.rules), "notifiers": len(rules.notifiers), "mistake": None}
    return {"file": str(path), "rules": 0, "notifiers": 0, "mistake": mistake}


def show_list(args: argparse.Namespace) -> int:
    """List alerts, or rules."""
    with open_client(home_of(args)) as client:
        if args.rules:
            rules = client.get(f"{_API}/rules")
            print_answer(args, rules, map(text.clean, _rule_lines(rules)))
            return 0
        alerts = client.get(f"{_API}/states", state=None if args.all else "open", limit=1000)["alerts"]
    print_answer(args, alerts, map(text.clean, _alert_lines(alerts)))
    return 0


def _alert_lines(alerts: Sequence[dict[str, Any]]) -> Iterable[str]:
    if not alerts:
        yield "nothing fires"
        return
    rows = [
        [
            each["state"],
            each["severity"],
            text.moment(int((each["fired"] or each["began"]) * 1e9)),
            each["run_name"] or each["run"],
            each["finding"] or each["rule"],
            each["message"] + (f" ({each['muted']})" if each["muted"] else ""),
        ]
        for each in alerts
    ]
    yield from text.table(("STATE", "SEVERITY", "SINCE", "RUN", "RULE", "MESSAGE"), rows)


def _rule_lines(rules: dict[str, Any]) -> Iterable[str]:
    for each in rules["mistakes"]:
        yield f"{each['file']}:{each['line']}:{each['column']}: {each['message']}"
    rows = [
        [
            each["name"],
            each["when"],
            each["for"] or "-",
            each["severity"] or "-",
            str(each["series"]),
            str(each["firing"]),
            each["source"],
        ]
        for each in rules["rules"]
    ]
    yield from text.table(("RULE", "WHEN", "FOR", "SEVERITY", ">SERIES", ">FIRING", "FROM"), rows)
    for each in rules["notifiers"]:
        problem = f": {each['trouble']}" if each["trouble"] else ""
        yield f"notifier {each['name']} ({each['place']}): {each['sent']} sent, {each['dropped']} dropped{problem}"


def test_rules(args: argparse.Namespace) -> int:
    """Run the tests of a file, or its rules over a stored run; 1 when a test fails."""
    from stepscope.alerts.rule_file import Mistake

    try:
        return _replay(args) if args.run else _tests(args)
    except Mistake as mistake:
        raise ConfigError(f"{args.file}:{mistake.line}:{mistake.column}: {mistake}") from None


def _replay(args: argparse.Namespace) -> int:
    from stepscope.alerts.rule_file import Mistake

    home = home_of(args)
    with open_client(home) as client:
        run = resolve_run(client, home, args.run)
        found = client.post(f"{_API}/preview", {"yaml": _text(args.file), "run": run})
    if found["mistake"] is not None:
        mistake = found["mistake"]
        raise Mistake(mistake["message"], mistake["line"], mistake["column"])
    lines = [
        f"{each['severity']} step {each['step']} to {each['last_step']}, {each['state']}: {each['message']}"
        for each in found["alerts"]
    ]
    over = f"{amount(found['points'], 'point')} of {amount(len(found['keys']), 'metric')} of {run}"
    print_answer(args, found, map(text.clean, [*lines, f"{amount(len(found['alerts']), 'alert')} over {over}"]))
    return 0


def _tests(args: argparse.Namespace) -> int:
    from stepscope.alerts.rule_replay import run_test

    file = _rules_of(args.file)
    if not file.tests:
        raise ConfigError(f"{args.file} has no `tests:`; to replay a stored run, name it with --run")
    found = [{"name": test.name, "failures": run_test(file.rules, test)} for test in file.tests]
    lines = []
    for each in found:
        lines.append(f"{'FAILED' if each['failures'] else 'ok'}  {each['name']}")
        lines += [f"        {mistake}" for mistake in each["failures"]]
    failed = sum(bool(each["failures"]) for each in found)
    print_answer(args, found, map(text.clean, [*lines, f"{amount(len(found), 'test')}, {failed} failed"]))
    return 1 if failed else 0


def _rules_of(path: Path) -> "Rules":
    from stepscope.alerts.rule_file import parse_tests

    def beside(name: str) -> str:
        return _text(path.parent / name)

    return parse_tests(_text(path), str(path), beside)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None


def silence_alerts(args: argparse.Namespace) -> int:
    """Add a silence, end one, or list them."""
    with open_client(home_of(args)) as client:
        if args.remove:
            found = client.change("DELETE", f"{_API}/silences/{{id}}", id=args.remove)
            print_answer(args, found, text.clean(f"{args.remove} is removed"))
        elif args.rule or args.run or args.key:
            body = {name: getattr(args, name) or "*" for name in ("rule", "run", "key")}
            made = client.post(f"{_API}/silences", {**body, "for": args.duration, "why": args.why})
            print_answer(args, made, map(text.clean, _silence_lines([made])))
        else:
            found = client.get(f"{_API}/silences")
            print_answer(args, found, map(text.clean, _silence_lines(found["silences"], found["expected"])))
    return 0


def _silence_lines(silences: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]] = ()) -> Iterable[str]:
    for each in silences:
        left = max(each["until"] - time.time(), 0)
        why = f": {each['why']}" if each["why"] else ""
        about = f"rule {each['rule']}, run {each['run']}, key {each['key']}"
        yield f"{each['id']}  {about}, {duration(left)} left, by {each['who'] or 'unknown'}{why}"
    for each in expected:
        where = f"run {each['run']}" if each["run"] else f"project {each['project']}"
        what = each["finding"] or each["rule"]
        yield f"{each['id']}  {what} of {each['key']} is expected in {where}, by {each['who']}"
    if not silences and not expected:
        yield "nothing is silenced"
