# Written by tools/unasync.py from tests/suite_async/test_restart.py. Do not edit.
"""A server that is killed and started again while a client follows."""

from __future__ import annotations

import signal

import pytest
from helpers import TOKEN, Server

from python_executor import Client, Event, Finished, Output, UnavailableError


def test_a_follower_outlasts_a_restart_of_the_server(private: Server) -> None:
    program = "import os, time\nos.write(1, b'one\\n')\ntime.sleep(600)"  # one write, so one event
    with Client(private.url, TOKEN) as client:
        execution_id = client.submit(program)
        seen: list[Event] = []
        for event in client.follow(execution_id):
            seen.append(event)
            if isinstance(event, Output):
                private.end(signal.SIGKILL)
                private.start()
        assert [e.seq for e in seen] == list(range(1, len(seen) + 1))
        assert b"".join(e.data for e in seen if isinstance(e, Output)) == b"one\n"
        last = seen[-1]
        assert isinstance(last, Finished) and last.execution.status == "lost"
        assert (client.get(execution_id)).stdout == "one\n"


def test_a_server_that_is_gone_is_unavailable(private: Server) -> None:
    with Client(private.url, TOKEN) as client:
        assert client.ready()
        private.end()
        assert not client.ready()
        with pytest.raises(UnavailableError) as caught:
            client.health()
        assert caught.value.status == 0
