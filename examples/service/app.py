"""The service's HTTP side: sessions, models, operations as futures, samples."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import redis.asyncio
from fastapi import Body, FastAPI, HTTPException

from service.controllers import SamplingController, TrainingController
from service.futures import FutureStore
from stepscope.integrations.fastapi import instrument as instrument_app
from stepscope.integrations.redis import instrument as instrument_redis
from stepscope.training.service import correlate, get_metrics

Arguments = Annotated[dict[str, Any] | None, Body()]
log = logging.getLogger("tuft.server")


def make_app(redis_url: str) -> FastAPI:
    """The app, with its store on a Redis server; Ray and telemetry are running when it starts."""
    client = instrument_redis(
        redis.asyncio.Redis.from_url(redis_url, decode_responses=True), get_metrics().redis_operation_duration
    )
    training = TrainingController(client)
    sampling, futures = SamplingController(training), FutureStore(client)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await futures.drain()
        await client.aclose()

    app = FastAPI(lifespan=lifespan)

    @app.post("/models")
    async def create_model(session_id: str = Body(), base_model: str = Body(), lora_rank: int = Body(8)) -> Any:
        correlate(session_id=session_id)
        log.info("creating a model")
        return {"training_run_id": await training.create_model(base_model, lora_rank)}

    @app.post("/models/{run_id}/{operation}")
    async def operate(run_id: str, operation: str, session_id: str = Body(), arguments: Arguments = None) -> Any:
        given = arguments or {}
        correlate(session_id=session_id, training_run_id=run_id)
        works = {
            "forward": lambda: training.run_forward(run_id, given["data"], False),
            "forward_backward": lambda: training.run_forward(run_id, given["data"], True),
            "optim_step": lambda: training.run_optim_step(run_id, given["learning_rate"]),
            "save_checkpoint": lambda: training.save_checkpoint(run_id, given.get("type", "training")),
        }
        if operation not in works:
            raise HTTPException(404, f"no operation {operation}")
        return {"request_id": await futures.enqueue(operation, run_id, works[operation])}

    @app.delete("/models/{run_id}")
    async def unload(run_id: str) -> Any:
        return {"forgotten": await training.unload(run_id)}

    @app.post("/samples")
    async def sample(session_id: str = Body(), run_id: str = Body(), count: int = Body(1)) -> Any:
        correlate(session_id=session_id)
        sampling_id = await sampling.create_sampling_session(run_id, "base")
        request_id = await futures.enqueue("sample", run_id, lambda: sampling.run_sample(sampling_id, count))
        return {"request_id": request_id, "sampling_session_id": sampling_id}

    @app.get("/futures/{request_id}")
    async def retrieve(request_id: str) -> Any:
        found = await futures.retrieve(request_id)
        if found is None:
            raise HTTPException(404, "no such future")
        return found

    return instrument_app(app)
