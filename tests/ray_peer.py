"""A real Ray for the tests: one node without what only its dashboard, its autoscaler and its log files need."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.late import late
from tests.shared import shared

ray, cluster_utils = late("ray"), late("ray.cluster_utils")
_NODE = {"num_cpus": 2, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
_SETTINGS = {
    "RAY_enable_metrics_collection": "0",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_gcs_server_port_wait_time_s": "600",
    "RAY_worker_niceness": "0",
    "RAY_worker_register_timeout_seconds": "600",
}
"""Fewer processes, workers that do not yield to all other processes, and no deadline that a busy machine would miss."""


@contextmanager
def connected(runtime_env: dict[str, Any]) -> Iterator[None]:
    """Connect to it for a block, as a job of its own whose workers have this environment."""
    ray.init(shared("ray", _node), log_to_driver=False, runtime_env=runtime_env)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _node() -> Iterator[str]:
    """Run a node in a folder of its own, where no other program looks for a Ray to join."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        settings = {**_SETTINGS, "RAY_TMPDIR": folder}
        with mock.patch.dict(os.environ, settings):
            cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=_NODE)
        try:
            yield cluster.address
        finally:
            with mock.patch.dict(os.environ, settings):
                cluster.shutdown()
