"""What the service does: models are trained, checkpoints saved, samples drawn; each operation is a span."""

import time
import uuid
from typing import Any

import ray

from service.model import Model
from stepscope.training.service import correlate, get_metrics, get_tracer


class TrainingController:
    """Keeps the models that are trained, each in an actor of its own."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._models: dict[str, Any] = {}
        self._tracer = get_tracer("tuft.training_controller")

    async def create_model(self, base_model: str, lora_rank: int) -> str:
        """Load a model; its id is that of the training run."""
        run_id = uuid.uuid4().hex
        with self._tracer.start_as_current_span("training_controller.create_model"):
            correlate(training_run_id=run_id, base_model=base_model, lora_rank=lora_rank)
            self._models[run_id] = ray.remote(num_cpus=0)(Model).remote(base_model, lora_rank)
            await self._redis.set(f"model:{run_id}", base_model)
            get_metrics().training_models_active.add(1, {"base_model": base_model})
        return run_id

    async def run_forward(self, run_id: str, data: list[float], backward: bool) -> Any:
        """Compute a loss, and gradients when asked."""
        name = "run_forward_backward" if backward else "run_forward"
        with self._tracer.start_as_current_span(f"training_controller.{name}"):
            correlate(training_run_id=run_id, backward=backward)
            began = time.perf_counter()
            answer = await self._models[run_id].forward_backward.remote(data, backward)
            spent = max(time.perf_counter() - began, 1e-9)
            base_model = await self._redis.get(f"model:{run_id}")
            get_metrics().training_tokens_per_second.record(answer["tokens"] / spent, {"base_model": base_model})
            return answer

    async def run_optim_step(self, run_id: str, learning_rate: float) -> Any:
        """Update a model."""
        with self._tracer.start_as_current_span("training_controller.run_optim_step"):
            correlate(training_run_id=run_id)
            return await self._models[run_id].optim_step.remote(learning_rate)

    async def save_checkpoint(self, run_id: str, checkpoint_type: str) -> Any:
        """Keep a model in Redis."""
        with self._tracer.start_as_current_span("training_controller.save_checkpoint"):
            correlate(training_run_id=run_id)
            state = await self._models[run_id].save_state.remote()
            await self._redis.set(f"checkpoint:{run_id}", state)
            metrics, kind = get_metrics(), {"checkpoint_type": checkpoint_type}
            metrics.training_checkpoints_saved.add(1, kind)
            metrics.training_checkpoint_size_bytes.record(len(state), kind)
            return {"bytes": len(state)}

    async def unload(self, run_id: str) -> int:
        """End a model, and forget what is kept of it."""
        actor = self._models.pop(run_id)
        ray.kill(actor)
        base_model = await self._redis.get(f"model:{run_id}")
        get_metrics().training_models_active.add(-1, {"base_model": base_model})
        keys = [key async for key in self._redis.scan_iter(match=f"*:{run_id}")]
        return int(await self._redis.delete(*keys))

    def model(self, run_id: str) -> Any:
        """The actor of a model."""
        return self._models[run_id]


class SamplingController:
    """Draws samples from models that are trained here."""

    def __init__(self, training: TrainingController) -> None:
        self._training = training
        self._sessions: dict[str, tuple[str, str]] = {}
        self._tracer = get_tracer("tuft.sampling_controller")

    async def create_sampling_session(self, run_id: str, base_model: str) -> str:
        """Open a session on a model."""
        sampling_id = uuid.uuid4().hex
        with self._tracer.start_as_current_span("sampling_controller.create_sampling_session"):
            correlate(sampling_session_id=sampling_id, base_model=base_model)
            self._sessions[sampling_id] = (run_id, base_model)
            get_metrics().sampling_sessions_active.add(1, {"base_model": base_model})
        return sampling_id

    async def run_sample(self, sampling_id: str, count: int) -> Any:
        """Draw samples."""
        run_id, base_model = self._sessions[sampling_id]
        metrics, kind = get_metrics(), {"base_model": base_model}
        metrics.sampling_requests.add(1, kind)
        with self._tracer.start_as_current_span("sampling_controller.run_sample"):
            correlate(sampling_session_id=sampling_id)
            began = time.perf_counter()
            samples = await self._training.model(run_id).sample.remote(count)
            spent = max(time.perf_counter() - began, 1e-9)
            metrics.sampling_duration.record(spent, kind)
            metrics.sampling_output_tokens.record(len(samples))
            metrics.sampling_tokens_per_second.record(len(samples) / spent, kind)
            return samples

    def close(self, sampling_id: str) -> None:
        """Close a session."""
        _, base_model = self._sessions.pop(sampling_id)
        get_metrics().sampling_sessions_active.add(-1, {"base_model": base_model})
