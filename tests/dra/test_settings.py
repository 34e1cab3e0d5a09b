"""The settings of the DRA driver: what it shares with the plugin, and what it has of its own."""

from dra.settings import DraSettings
from plugin.settings import PluginSettings


def test_the_driver_has_no_mode_and_the_rest_of_a_node_as_the_plugin() -> None:
    of_driver, of_plugin = set(DraSettings.model_fields), set(PluginSettings.model_fields)
    assert of_driver - of_plugin == set()
    assert of_plugin - of_driver == {"mode", "units", "cdi", "hook_path"}
