"""Three lanes of tests: `make test` runs core, `make test-page` the browser, `make test-chaos` what takes patience."""

PAGE = ("tests/web/",)
CHAOS = (
    "tests/dialects/mlflow/receiver/test_same_answers.py",
    "tests/dialects/mlflow/receiver/test_same_registry.py",
    "tests/dialects/mlflow/receiver/test_same_traces.py",
    "tests/dialects/mlflow/receiver/test_clients.py",
    "tests/dialects/mlflow/receiver/test_request_fields.py",
    "tests/dialects/mlflow/receiver/test_tracking.py",
    "tests/contrib/",
    "tests/demo/",
    "tests/e2e/",
    "tests/fuzz/",
    "tests/imports/test_bring_your_runs.py",
    "tests/imports/test_follow.py",
    "tests/dialects/tensorboard/test_importer.py",
    "tests/integrations/",
    "tests/diagnosis/test_real_runs.py",
    "tests/hub/cluster/",
    "tests/dialects/wandb/receiver/test_api.py",
    "tests/dialects/wandb/receiver/test_client.py",
    "tests/dialects/wandb/receiver/test_delete.py",
    "tests/dialects/wandb/receiver/test_old_clients.py",
    "tests/dialects/wandb/receiver/test_artifact_commits.py",
    "tests/dialects/wandb/receiver/test_manifests.py",
    "tests/dialects/wandb/receiver/test_outage.py",
    "tests/dialects/wandb/receiver/test_query_limits.py",
    "tests/dialects/wandb/test_same_page.py",
    "tests/hub/store/write/test_fold.py",
    "tests/hub/test_connections.py",
    "tests/hub/test_crashes.py",
    "tests/hub/test_damage.py",
    "tests/hub/test_edits.py",
    "tests/hub/test_full.py",
    "tests/hub/test_live_limits.py",
    "tests/hub/runs/test_run_states.py",
    "tests/hub/test_security.py",
    "tests/hub/test_slow_store.py",
    "tests/hub/test_sql_limits.py",
    "tests/hub/test_start.py",
    "tests/hub/questions/test_openapi.py",
    "tests/dialects/datadog/receiver/test_restart.py",
    "tests/dialects/tinker/receiver/test_proxy.py",
    "tests/dialects/tinker/receiver/test_tinker_client.py",
    "tests/sdk/test_console_capture.py",
    "tests/sinks/test_faults.py",
    "tests/test_guides.py",
    "tests/test_walks.py",
    "tests/dialects/mlflow/sink/test_faults.py",
)
"""Killed processes, full disks, cut networks, foreign test suites and large frameworks."""
CORE_ANYWAY = ("tests/web/test_every_view.py", "tests/web/test_node.py", "tests/web/test_texts.py")
"""One browser pass over every view, and what needs no browser, are part of `make test`."""
LANES = ("chaos", "page", "core")
"""In the order in which they are run: what takes longest begins first, so that no worker is left with it at the end."""
WORLDS = (
    (
        "tests/hub/cluster/test_documents.py",
        "tests/hub/cluster/test_epochs.py",
        "tests/hub/cluster/test_first_start.py",
        "tests/hub/cluster/test_hub_on_server.py",
        "tests/hub/cluster/test_server.py",
        "tests/hub/cluster/test_server_contract.py",
        "tests/hub/cluster/test_several_hubs.py",
        "tests/hub/cluster/test_sql_user.py",
        "tests/hub/cluster/test_unknown_outcome.py",
    ),
    ("tests/hub/cluster/",),
    (
        "tests/web/test_charts.py",
        "tests/web/test_charts_reading.py",
        "tests/web/test_diagnosis.py",
        "tests/web/test_every_view.py",
        "tests/web/test_keyboard.py",
        "tests/web/test_menus.py",
        "tests/web/test_last_value.py",
        "tests/web/test_notebook_view.py",
        "tests/web/test_page.py",
        "tests/web/test_scopes.py",
        "tests/web/test_step.py",
    ),
    (
        "tests/web/test_share.py",
        "tests/web/test_views.py",
        "tests/web/test_workspace.py",
    ),
    (
        "tests/web/test_editing.py",
        "tests/web/test_files.py",
        "tests/web/test_return.py",
        "tests/web/test_runs.py",
        "tests/web/test_table.py",
    ),
    (
        "tests/web/test_control.py",
        "tests/web/test_hostile_texts.py",
        "tests/web/test_invisible_characters.py",
        "tests/web/test_live.py",
        "tests/web/test_long_texts.py",
        "tests/web/test_many.py",
        "tests/web/test_rank_evidence.py",
        "tests/web/test_run_follows.py",
        "tests/web/test_run_truth.py",
        "tests/web/test_samples.py",
    ),
    ("tests/web/views/",),
    (
        "tests/integrations/torch/",
        "tests/integrations/test_accelerate.py",
        "tests/integrations/test_keras.py",
        "tests/integrations/test_lightning.py",
        "tests/integrations/test_stable_baselines3.py",
        "tests/integrations/test_transformers.py",
        "tests/diagnosis/test_real_runs.py",
    ),
    (
        "tests/dialects/mlflow/receiver/test_same_answers.py",
        "tests/dialects/mlflow/receiver/test_same_registry.py",
        "tests/dialects/mlflow/receiver/test_same_traces.py",
    ),
    (
        "tests/integrations/test_ray.py",
        "tests/integrations/test_ray_train.py",
        "tests/training/test_service.py",
    ),
    (
        "tests/e2e/test_sinks_tunnel.py",
        "tests/dialects/mlflow/sink/test_runs.py",
        "tests/test_walks.py",
        "tests/dialects/mlflow/sink/test_faults.py",
        "tests/training/test_seed_000_mlflow.py",
    ),
    (
        "tests/sdk/test_attributes.py",
        "tests/sdk/test_self_diagnosis.py",
        "tests/sdk/test_tensors.py",
        "tests/dialects/wandb/shim/test_tensorboard_sync.py",
    ),
)
"""Files that share a cluster, a server, a hub, a browser or a large import: one worker makes it, once.

Worlds are begun in this order, before all other files: those that take longest stand first. What one worker cannot end
before the others have done the rest keeps them waiting, so the browser's files are in several.
"""

DIVIDED = ("tests/diagnosis/test_real_zoo.py",)
"""Files whose tests share nothing and take seconds each: every test is run by whichever worker is free."""


def lane_of(path: str) -> str:
    """Return the lane of a test file, given its path from the root of the project."""
    if path.startswith(CORE_ANYWAY):
        return "core"
    return "page" if path.startswith(PAGE) else "chaos" if path.startswith(CHAOS) else "core"


def world_of(path: str) -> str | None:
    """Return what the world of a test file is called, None for a file that shares nothing."""
    return next((each[0] for each in WORLDS if path.startswith(each)), None)


def place_of(path: str) -> tuple[int, int]:
    """Return what test files are sorted by: worlds as they are listed, then the files that share nothing, by lanes."""
    world = next((number for number, each in enumerate(WORLDS) if path.startswith(each)), len(WORLDS))
    return world, LANES.index(lane_of(path))


def group_of(test: str) -> str:
    """Return the name of what one worker runs from its first test to its last: a world, a file, or a lone test."""
    path = test.partition("::")[0]
    return world_of(path) or (test if path in DIVIDED else path)
