# What the driver changes in modules that users import. See control.py.
def change_pyplot(module):
    module.show = lambda *args, **kwargs: show_figures()


def change_plotly(module):
    module.BaseFigure.show = lambda figure, *args, **kwargs: show(figure, False)  # it would look for a browser


def change_ipython(module):
    if hasattr(module, "display"):
        module.display = display  # without a shell of IPython it prints the object
    if hasattr(module, "clear_output"):
        module.clear_output = lambda wait=False: None


def change_asyncio(module):
    if _thread.get_ident() == MAIN_THREAD:
        use_loop()


# CHANGES has a function for each module that is not imported yet.
CHANGES = {
    "matplotlib.pyplot": change_pyplot,
    "plotly.basedatatypes": change_plotly,
    "IPython.core.display_functions": change_ipython,
    "IPython.display": change_ipython,
    "asyncio": change_asyncio,
}


class ImportHook:
    """Changes modules when they are imported. A look for a module, such as importlib.util.find_spec, leaves its change for the import."""

    looking = set()  # names with the threads in which the hook looks for them

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in CHANGES:
            return None
        import _thread  # a program has none of the driver's imports
        import importlib.util

        look = (name, _thread.get_ident())
        if look in ImportHook.looking:
            return None
        ImportHook.looking.add(look)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            ImportHook.looking.discard(look)
        if spec is None or spec.loader is None:
            return spec  # it may be installed later
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change = CHANGES.pop(name, None)
            try:
                if change is not None:
                    change(module)
            except Exception:
                pass  # the module is another one than we know

        spec.loader.exec_module = exec_module
        return spec


def change_modules():
    sys.meta_path.insert(0, ImportHook)
    for name in list(CHANGES):
        if name in sys.modules:
            CHANGES.pop(name)(sys.modules[name])


# The event loop. There is one for the life of a session, from the import of asyncio on, so what a cell makes without await belongs to it.


def use_loop():
    import asyncio

    if S.loop is None or S.loop.is_closed():
        S.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(S.loop)


def keep_loop():
    """Gives the session its loop back where a cell before has left none, as asyncio.run does."""
    if S.loop is None:
        return
    import asyncio

    try:
        if sys.version_info >= (3, 12):
            asyncio.get_event_loop()
        else:
            asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        use_loop()


def start_task(coroutine):
    """Starts a task that has the context of all cells."""
    try:
        return S.loop.create_task(coroutine, context=S.context)
    except TypeError:  # before Python 3.11, or a task factory of the user that knows no contexts
        return S.context.run(S.loop.create_task, keep_context(coroutine))


async def keep_context(coroutine):
    try:
        return await coroutine
    finally:
        for variable, value in _contextvars.copy_context().items():
            S.context.run(variable.set, value)
