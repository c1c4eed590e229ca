"""The receiver of MLflow's REST API: tracking, artifacts and logged models."""
