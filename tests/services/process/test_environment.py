"""The environment is shared: a process must know the variables of all."""

import pytest

from certs.settings import CertsSettings
from plugin.settings import PluginSettings
from services.process.settings import ENVIRONMENT, Settings
from webhook.settings import WebhookSettings


@pytest.mark.parametrize("model", [WebhookSettings, PluginSettings, CertsSettings])
def test_every_setting_of_a_process_is_known_to_the_others(model: type[Settings]) -> None:
    assert set(model.model_fields) <= ENVIRONMENT


def test_no_variable_is_known_that_no_process_reads() -> None:
    models = (WebhookSettings, PluginSettings, CertsSettings)
    assert {name for model in models for name in model.model_fields} == ENVIRONMENT
