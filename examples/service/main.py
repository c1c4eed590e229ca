"""Start the service: `PYTHONPATH=examples python -m service.main redis://localhost:6379 8000`."""

import sys
from pathlib import Path

import ray
import uvicorn

from service.app import make_app
from stepscope.integrations.ray import runtime_env
from stepscope.training.service import init_telemetry, shutdown_telemetry

HERE = Path(__file__).parent


def main(redis_url: str, port: int) -> None:
    """Serve until interrupted."""
    init_telemetry(HERE / "telemetry.yaml")
    path = {"env_vars": {"PYTHONPATH": str(HERE.parent)}}
    ray.init(include_dashboard=False, runtime_env=runtime_env(path))
    try:
        uvicorn.run(make_app(redis_url), port=port)
    finally:
        ray.shutdown()
        shutdown_telemetry()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
