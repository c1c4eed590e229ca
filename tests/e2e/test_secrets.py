"""No secret that a program mentions is readable: not in the journal, not from the hub, not in the terminal."""

import json
from pathlib import Path

from tests.conftest import RUN, Python
from tests.forked import stepscope
from tests.hub.conftest import StartHub, start_hub
from tests.model.secret_corpus import INNOCENT, planted

__all__ = ["start_hub"]

TRAIN = """
    import json, logging, pathlib, sys
    import stepscope
    from opentelemetry import trace
    texts = json.loads(pathlib.Path(sys.argv[1]).read_text())
    planted, innocent = texts["planted"], texts["innocent"]
    run = stepscope.init(
        config={"nested": [{key: text} for key, text in planted], "innocent": innocent},
        resource_attributes={f"r{n}.{key}": text for n, (key, text) in enumerate(planted[:100])},
    )
    log = logging.getLogger("train")
    for step, (key, text) in enumerate(planted):
        with run.step(step):
            with run.span("work", **{key: text}) as span:
                span.set_attribute(f"late.{key}", [text, text])
                span.add_event("seen", {key: text})
            with run.span(text if key == "note" else "named"):
                pass
            if key == "note":
                log.warning("it says %s", text)
                log.warning("%s", text, extra={"extra": {"deep": {"text": text}}})
                run.alert("look", message=text, note=text)
                try:
                    with trace.get_tracer("lib").start_as_current_span(text):
                        raise RuntimeError(text)
                except RuntimeError as error:
                    run.exception(error)
            run.event("told", {key: text, "bytes": text.encode() if key == "note" else b"", "pair": [[key, text]]})
    for text in innocent:
        log.warning(text)
    assert run.finish()
"""


def test_no_planted_secret_is_readable(python: Python, home: Path, tmp_path: Path, start_hub: StartHub) -> None:
    """Over 200 secrets in config, command line, resource, attributes, logs, events and exceptions: none is found."""
    corpus = list(planted())
    assert len(corpus) > 200
    given = tmp_path / "texts.json"
    given.write_text(json.dumps({"planted": [(each.key, each.text) for each in corpus], "innocent": INNOCENT}))
    arguments = [each.text for each in corpus if each.key == "note"]
    options = [word for each in corpus if each.key != "note" for word in (f"--{each.key}", each.text)]
    done = python(TRAIN, given, *arguments, *options)
    assert done.returncode == 0, done.stderr
    journal = b"".join(path.read_bytes() for path in sorted((home / "runs").rglob("*.seg")))
    secrets = {each.secret: each for each in corpus}
    assert not [each for secret, each in secrets.items() if secret.encode() in journal]
    assert not [text for text in INNOCENT if text.encode() not in journal]
    hub = start_hub(home=home)
    hub.wait_stored("folder", len(corpus) * 5)
    answers = [hub.request("GET", path).body.decode() for path in _PATHS]
    assert all("[redacted]" in answer for answer in answers[1:])
    shown = [_cli(home, "show", RUN, "--json"), _cli(home, "tail", RUN, "--json", "-n", "100000")]
    assert not [each for secret, each in secrets.items() if any(secret in text for text in (*answers, *shown))]


_PATHS = [
    "/api/runs",
    f"/api/runs/{RUN}",
    f"/api/spans?run={RUN}&limit=1000",
    f"/api/logs?run={RUN}&limit=1000",
]


def _cli(home: Path, *words: str) -> str:
    done = stepscope(*words, "--home", home)
    assert done.returncode == 0, done.stderr
    return done.stdout
