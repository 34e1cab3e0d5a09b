"""The environment is shared: a process must know the variables of all."""

import pytest

from plugin.settings import PluginSettings
from services.runtime.settings import ENVIRONMENT, Settings
from webhook.settings import WebhookSettings


@pytest.mark.parametrize("model", [WebhookSettings, PluginSettings])
def test_every_setting_of_a_process_is_known_to_the_others(model: type[Settings]) -> None:
    assert set(model.model_fields) <= ENVIRONMENT


def test_no_variable_is_known_that_no_process_reads() -> None:
    read = set(WebhookSettings.model_fields) | set(PluginSettings.model_fields)
    assert read == ENVIRONMENT
