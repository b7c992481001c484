"""A server that is killed and started again while a client follows."""

from __future__ import annotations

import signal

import pytest
from helpers import TOKEN, Server

from python_executor import AsyncClient, Event, Finished, Output, UnavailableError


async def test_a_follower_outlasts_a_restart_of_the_server(private: Server) -> None:
    program = "import os, time\nos.write(1, b'one\\n')\ntime.sleep(600)"  # one write, so one event
    async with AsyncClient(private.url, TOKEN) as client:
        execution_id = await client.submit(program)
        seen: list[Event] = []
        async for event in client.follow(execution_id):
            seen.append(event)
            if isinstance(event, Output):
                private.end(signal.SIGKILL)
                private.start()
        assert [e.seq for e in seen] == list(range(1, len(seen) + 1))
        assert b"".join(e.data for e in seen if isinstance(e, Output)) == b"one\n"
        last = seen[-1]
        assert isinstance(last, Finished) and last.execution.status == "lost"
        assert (await client.get(execution_id)).stdout == "one\n"


async def test_a_server_that_is_gone_is_unavailable(private: Server) -> None:
    async with AsyncClient(private.url, TOKEN) as client:
        assert await client.ready()
        private.end()
        assert not await client.ready()
        with pytest.raises(UnavailableError) as caught:
            await client.health()
        assert caught.value.status == 0
