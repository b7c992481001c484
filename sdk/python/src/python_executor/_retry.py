"""Which calls are repeated, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .errors import ExecutorError, UnavailableError


@dataclass(frozen=True)
class RetryPolicy:
    """Bounds the retries of calls that cannot run a program twice."""

    #: The maximum number of attempts, including the first. 1: no retry.
    attempts: int = 4
    #: The maximum number of consecutive attempts of `follow` without an event. The default outlasts a restart of the server.
    follow_attempts: int = 12
    #: The pause before the first retry in seconds. It doubles, jittered, up to `max_delay`.
    min_delay: float = 0.2
    #: The longest pause in seconds. It also bounds the pause that a server asks for with Retry-After.
    max_delay: float = 5.0

    def delay(self, attempt: int, error: ExecutorError) -> float:
        """Return the pause after the attempt with this number, from 1."""
        ceiling = min(self.max_delay, self.min_delay * 2 ** min(attempt - 1, 20))
        jittered = ceiling * (0.5 + random.random() / 2)  # jitter is no secret
        return max(jittered, min(error.retry_after, self.max_delay))


@dataclass(frozen=True)
class Retry:
    """A failed attempt that will be repeated, for the hook `on_retry`."""

    #: "run", "get", "follow", ….
    operation: str
    #: The number of the attempt that failed, from 1.
    attempt: int
    #: The pause before the next attempt in seconds.
    delay: float
    error: ExecutorError


def is_temporary(error: ExecutorError) -> bool:
    """Report whether the same request may succeed later."""
    return isinstance(error, UnavailableError) or error.status == 429
