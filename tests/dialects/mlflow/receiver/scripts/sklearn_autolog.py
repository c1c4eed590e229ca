"""Autologging of scikit-learn: params, metrics, a dataset and a logged model, which is loaded again."""

import json

import mlflow
import numpy as np
from sklearn.linear_model import LinearRegression

mlflow.set_experiment("sklearn")
mlflow.sklearn.autolog(log_models=False)
x = np.arange(20.0).reshape(-1, 1)
with mlflow.start_run() as run:
    LinearRegression().fit(x, x[:, 0] * 2)
    model = LinearRegression().fit(x, x[:, 0])
    mlflow.sklearn.log_model(model, name="again", pip_requirements=["scikit-learn"])  # else it looks for them
found = mlflow.MlflowClient().get_run(run.info.run_id)
models = mlflow.search_logged_models(output_format="list")
loaded = mlflow.sklearn.load_model(models[-1].model_uri)
print(
    json.dumps(
        {
            "params": sorted(found.data.params),
            "metrics": sorted(found.data.metrics),
            "models": len(models),
            "outputs": len(found.outputs.model_outputs),
            "datasets": len(found.inputs.dataset_inputs),
            "predicted": round(float(loaded.predict([[3.0]])[0]), 3),
        }
    )
)
