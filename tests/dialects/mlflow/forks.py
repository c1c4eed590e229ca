"""MLflow's own server, forked from a process that has imported it: an import takes as long as a hundred tests."""

import gc
import os
import signal
import sys


def main(store: str, files: str) -> None:
    """Serve on each port that is asked for, a line each, and answer with the pid."""
    import uvicorn
    from mlflow.server import constants

    os.environ[constants.BACKEND_STORE_URI_ENV_VAR] = store
    os.environ[constants.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[constants.ARTIFACTS_DESTINATION_ENV_VAR] = files
    os.environ[constants.SERVE_ARTIFACTS_ENV_VAR] = "true"
    from mlflow.server.fastapi_app import app

    gc.collect()
    gc.freeze()  # no server that is forked has to walk through it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(2, 1)  # what it prints is no pid
            uvicorn.run(app, host="127.0.0.1", port=int(line), log_level="warning")
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
