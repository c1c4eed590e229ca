"""All endpoints, in the order in which a path is looked up."""

from stepscope.hub.questions import (
    dashboards,
    edits,
    export,
    findings,
    glances,
    goodput,
    histograms,
    pipeline,
    quantiles,
    records,
    runs,
    sql,
    tables,
)
from stepscope.hub.questions import step as steps
from stepscope.hub.questions import trace_files as traces_io
from stepscope.hub.questions.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *steps.ENDPOINTS,
    *export.ENDPOINTS,
    *quantiles.ENDPOINTS,
    *histograms.ENDPOINTS,
    *findings.ENDPOINTS,
    *goodput.ENDPOINTS,
    *edits.ENDPOINTS,
    *runs.ENDPOINTS,
    *glances.ENDPOINTS,
    *records.ENDPOINTS,
    *traces_io.ENDPOINTS,
    *sql.ENDPOINTS,
    *tables.ENDPOINTS,
    *dashboards.ENDPOINTS,
    *pipeline.ENDPOINTS,
)


def endpoint_of(path: str, method: str = "GET") -> Endpoint:
    """Find an endpoint by its path as written here, and its method."""
    return next(endpoint for endpoint in ENDPOINTS if (endpoint.path, endpoint.method) == (path, method))
