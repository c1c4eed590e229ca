"""All endpoints, in the order in which a path is looked up."""

from stepscope.hub.api import export, records, runs, sql, steps
from stepscope.hub.api.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *steps.ENDPOINTS,
    *export.ENDPOINTS,
    *runs.ENDPOINTS,
    *records.ENDPOINTS,
    *sql.ENDPOINTS,
)


def endpoint_of(path: str) -> Endpoint:
    """Find an endpoint by its path as written here."""
    return next(endpoint for endpoint in ENDPOINTS if endpoint.path == path)
