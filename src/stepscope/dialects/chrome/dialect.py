"""Chrome's trace files, which Perfetto opens: spans are exported and imported."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="chrome",
    trace_format="stepscope.dialects.chrome.trace_format:ChromeFormat",
)
