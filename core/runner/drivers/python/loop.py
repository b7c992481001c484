# The event loop of a program that awaits at top level. See program.py.
def run_in_loop(code):
    use_loop()
    if S.context is None:
        S.context = _contextvars.copy_context()
    S.loop.run_until_complete(start_task(steps(code)))


async def steps(code):
    if code.co_flags & CO_COROUTINE:
        await types.FunctionType(code, S.names)()
    else:
        exec(code, S.names)


def close_loop():
    """Ends the loop as asyncio.run does."""
    import asyncio

    tasks = asyncio.all_tasks(S.loop)
    for task in tasks:
        task.cancel()
    S.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    S.loop.run_until_complete(S.loop.shutdown_asyncgens())
    S.loop.close()
