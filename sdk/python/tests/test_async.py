"""What only async callers can do."""

from __future__ import annotations

import asyncio
from typing import List

import pytest
from helpers import Server

from python_executor import AsyncClient, Event, Output


async def test_a_caller_that_is_cancelled_kills_its_execution(server: Server) -> None:
    started = asyncio.Event()
    async with AsyncClient() as client:
        running = asyncio.ensure_future(client.run("import time; print(1, flush=True); time.sleep(600)", stdout=lambda _: started.set()))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await client.list_page(limit=1)).executions[0].status == "killed"


async def test_callbacks_may_be_coroutine_functions(server: Server) -> None:
    seen: List[str] = []

    async def take(event: Event) -> None:
        await asyncio.sleep(0)
        if isinstance(event, Output):
            seen.append(event.data.decode())

    async with AsyncClient() as client:
        await client.run("print('async')", on_event=take)
    assert seen == ["async\n"]


async def test_runs_go_on_beside_each_other(server: Server) -> None:
    async with AsyncClient() as client:
        done = await asyncio.gather(*[client.run(f"print({n})") for n in range(8)])
    assert [e.stdout for e in done] == [f"{n}\n" for n in range(8)]
