"""Requests to a hub's application in this process, without a port."""

import asyncio
from typing import Any

import httpx


def request(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
    """Send one request as from loopback and return the response; a bug in the application answers 500."""

    async def exchange() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4318") as client:
            return await client.request(method, path, **options)

    return asyncio.run(exchange())
