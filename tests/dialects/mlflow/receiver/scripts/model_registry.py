"""A model is registered as it is logged, and again by its URI; aliases, stages and tags lead back to it."""

import json

import mlflow
from mlflow import MlflowClient
from sklearn.linear_model import LinearRegression

client = MlflowClient()
mlflow.set_experiment("registry")
model = LinearRegression().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
with mlflow.start_run():
    first = mlflow.sklearn.log_model(model, name="line", registered_model_name="line", input_example=[[1.0]])
second = mlflow.register_model(first.model_uri, "line", tags={"by": "hand"})
by_run = client.create_model_version("line", f"{first.artifact_path}", run_id=first.run_id, model_id=first.model_id)
client.set_registered_model_alias("line", "champion", second.version)
client.transition_model_version_stage("line", "1", "Staging")
client.set_registered_model_tag("line", "task", "regression")
client.update_model_version("line", "1", description="the first")
loaded = [
    mlflow.pyfunc.load_model(f"models:/line{which}").predict([[3.0]])[0]
    for which in ("/1", "@champion", "/Staging", "/latest")
]
found = client.search_model_versions("name = 'line'", order_by=["version_number ASC"])
client.delete_model_version("line", by_run.version)
prompt = mlflow.genai.register_prompt(name="greet", template="Hello {{name}}")
print(
    json.dumps(
        {
            "predicted": [round(float(each), 6) for each in loaded],
            "versions": [[each.version, each.current_stage] for each in found],
            "of the model": client.get_logged_model(first.model_id).tags["mlflow.modelVersions"],
            "tags": client.get_registered_model("line").tags,
            "aliases": client.get_registered_model("line").aliases,
            "described": client.get_model_version("line", "1").description,
            "run": client.get_model_version_by_alias("line", "champion").run_id == first.run_id,
            "prompt": mlflow.genai.load_prompt(f"prompts:/greet/{prompt.version}").format(name="you"),
            "models": [each.name for each in client.search_registered_models()],
        }
    )
)
