"""MLflow: its REST API is received, records are sent to its server, and its runs are imported."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="mlflow",
    sink="stepscope.dialects.mlflow.sink:Mlflow",
    receiver="stepscope.dialects.mlflow.receiver.tracking_api:Mlflow",
    importer="stepscope.dialects.mlflow.importer:SOURCES",
    media="stepscope.dialects.mlflow.media:MlflowImages",
    client_state="kept",
    reads_back=True,
    headers=("x-mlflow-run-id", "x-mlflow-experiment-id"),
)
