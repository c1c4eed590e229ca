"""What receivers, listeners and media readers of dialects use of the hub."""

from stepscope.hub.intake.intake_journal import Mark, StoreProgress
from stepscope.hub.intake.read_back import ReadBack, pauses
from stepscope.hub.limits import Limits
from stepscope.hub.questions.files.media_reader import (
    KINDS,
    MAX_TEXT,
    Media,
    chart_entry,
    file_entry,
    layer_entry,
    place_of,
)
from stepscope.hub.questions.traces.stored_spans import SpanRow, read_trace
from stepscope.hub.receivers.bodies import inflate, parse, read_body, with_body
from stepscope.hub.receivers.file_uploads import keep_file, remove_folder
from stepscope.hub.receivers.ingest import (
    SAFE,
    ArrivalClock,
    Ingest,
    Repeats,
    RunLink,
    RunLinks,
    Upload,
    Writers,
    digest,
    written,
)
from stepscope.hub.receivers.listener import ListenerOptions, ListenerPorts
from stepscope.hub.receivers.receiver import ReceiverPorts, ReceiverRoute
from stepscope.hub.refusals import Refusal, Refused, error_response, json_response, refusal_headers
from stepscope.hub.runs.deletion import RunDeletion
from stepscope.hub.runs.run_files import PART, RunFile, StoredFileResponse, below, disposition, walk, with_steps
from stepscope.hub.runs.run_states import RunStates
from stepscope.hub.security.guard import (
    HEAD,
    Access,
    Guard,
    RequestHead,
    access_of,
    basic_password,
    bearer,
    is_loopback,
    too_large,
)
from stepscope.hub.security.tokens import PREFIX, Scope
from stepscope.hub.serving.addresses import bracketed, listen
from stepscope.hub.store import literal
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine, EngineError
from stepscope.hub.store.read.log_rows import LogRow, read_log_rows
from stepscope.hub.store.read.run_catalog import list_runs, run_number
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.schema import LAST, NO_STEP
from stepscope.hub.store.write.ledger import Ranges
from stepscope.hub.threads import Workers
from stepscope.hub.upstream import Headers, Passing, Upstream, UpstreamFailed, pass_on
from stepscope.journal.atomic_files import replace_file

__all__ = [
    "HEAD",
    "KINDS",
    "LAST",
    "MAX_TEXT",
    "NO_STEP",
    "PART",
    "PREFIX",
    "SAFE",
    "Access",
    "Answer",
    "ArrivalClock",
    "Engine",
    "EngineError",
    "Guard",
    "Headers",
    "Ingest",
    "Limits",
    "ListenerOptions",
    "ListenerPorts",
    "LogRow",
    "Mark",
    "Media",
    "Passing",
    "Ranges",
    "ReadBack",
    "ReceiverPorts",
    "ReceiverRoute",
    "Refusal",
    "Refused",
    "Repeats",
    "RequestHead",
    "RunDeletion",
    "RunFile",
    "RunLink",
    "RunLinks",
    "RunRow",
    "RunStates",
    "Scope",
    "SpanRow",
    "StoreProgress",
    "StoredFileResponse",
    "Upload",
    "Upstream",
    "UpstreamFailed",
    "Workers",
    "Writers",
    "access_of",
    "basic_password",
    "bearer",
    "below",
    "bracketed",
    "chart_entry",
    "digest",
    "disposition",
    "error_response",
    "file_entry",
    "inflate",
    "is_loopback",
    "json_response",
    "keep_file",
    "layer_entry",
    "list_runs",
    "listen",
    "literal",
    "parse",
    "pass_on",
    "pauses",
    "place_of",
    "read_body",
    "read_log_rows",
    "read_trace",
    "refusal_headers",
    "remove_folder",
    "replace_file",
    "run_number",
    "too_large",
    "walk",
    "with_body",
    "with_steps",
    "written",
]
