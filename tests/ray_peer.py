"""A real Ray for the tests: one node without what only its dashboard, its autoscaler and its log files need."""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from tests import ray_worker
from tests.late import late
from tests.shared import shared

ray, raylet = late("ray"), late("ray._raylet")
cluster_utils, services = late("ray.cluster_utils"), late("ray._private.services")
_NODE = {
    "num_cpus": 2,
    "include_dashboard": False,
    "include_log_monitor": False,
    "no_monitor": True,
    "setup_worker_path": ray_worker.__file__,
}
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_gcs_server_port_wait_time_s": "600",
    "RAY_prestart_worker_first_driver": "0",
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
        patient = mock.patch("ray._private.services.get_node", partial(_wait_for_node, services.get_node))
        light = mock.patch("ray._private.node.Node.start_api_server", _write_ports)
        with mock.patch.dict(os.environ, settings), patient, light:
            arguments = {**_NODE, "runtime_env_agent_port": _free_port()}
            cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=arguments)
        try:
            yield cluster.address
        finally:
            with mock.patch.dict(os.environ, settings):
                cluster.shutdown()


def _wait_for_node(get_node: Callable[[str, str], Any], address: str, node: str) -> Any:
    """Return what is known of a node once it has started; Ray itself would ask without a pause, for 30 s."""
    deadline = time.monotonic() + 600
    while True:
        try:
            return get_node(address, node)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _write_ports(node: Any, **_: Any) -> None:
    """Write the ports of a node's agents, instead of starting its dashboard: the node would wait for them 30 s only."""
    absent = (raylet.METRICS_AGENT_PORT_NAME, raylet.METRICS_EXPORT_PORT_NAME, raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME)
    ports = {**dict.fromkeys(absent, -1), raylet.RUNTIME_ENV_AGENT_PORT_NAME: node._ray_params.runtime_env_agent_port}
    for name, port in ports.items():
        raylet.persist_port(node._session_dir, node._node_id, name, port)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
