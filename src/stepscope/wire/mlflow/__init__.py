"""MLflow's REST API: records to its metrics, params and tags, within its limits."""
