"""`accelbind plugin`: serve this node's cards to its kubelet."""

import typer

from accelbind import __version__
from accelbind.flags import settings_command
from plugin.settings import PluginSettings


def serve(settings: PluginSettings, context: typer.Context) -> None:
    """Serve this node's devices to its kubelet.

    Finds the FPGA cards of the OPAE and DFL drivers and the devices of device
    types, registers a resource for each kind of device, reports their health to
    the kubelet, and gives containers their device nodes. With --api dra it
    publishes them as ResourceSlices, and prepares the claims that get them.
    Ends cleanly on SIGTERM. Each option may also be a variable
    ACCELBIND_<OPTION>. A TIME is a number with ms, s, m, h or d behind it; a
    bare number counts seconds.

    [bold]Examples[/bold]
      accelbind plugin
      accelbind plugin --mode region --node-name node-1
      accelbind plugin --mode units --units 8 --metrics-port 0
      accelbind plugin --api dra --device-types /etc/accelbind/device-types
      accelbind plugin --root ./snapshot --kubelet-dir ./kubelet
    """
    import asyncio  # noqa: PLC0415 - only when it runs

    from plugin.process import run  # noqa: PLC0415 - the same

    asyncio.run(run(settings, version=__version__, driver_calls=context.obj.driver_calls))


plugin = settings_command(PluginSettings, serve)
