"""The program is two programs.

A host starts it as the plugin. The plugin starts it again for each program that it runs, with the argument "supervise".
"""

import os
import sys

# The handshake of docs/plugins.md. The cookie is not secret.
COOKIE = ("PYEXEC_PLUGIN", "e6b1c0f4-python-executor-plugin")


def main() -> None:
    if sys.argv[1:2] == ["supervise"]:
        from local_backend import supervisor  # imports no gRPC, so that it starts quickly

        sys.exit(supervisor.main(int(sys.argv[2])))
    if os.environ.get(COOKIE[0]) != COOKIE[1]:
        sys.exit("This is a plugin of python-executor, which must start it. Try: python-executor plugin check " + sys.argv[0])
    import asyncio

    from local_backend import plugin

    asyncio.run(plugin.serve())
