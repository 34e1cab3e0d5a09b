import pytest

from services.containers.permission import (
    Enforce,
    is_enforced,
    require_mapped_functions,
    require_mapped_resource,
)
from services.containers.wanted import WantedFunctions
from services.devices.model import PluginMode
from services.mappings.index import NamespaceMappings
from services.process.errors import NotMapped
from tests.services.building import (
    AF_NLB0,
    AF_STRATIX_NLB3,
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
    STRATIX_REGION,
    Object,
    function,
    index,
    region,
)

WHO = 'container "c" of pod default/p'


def mappings(*objects: Object) -> NamespaceMappings:
    return index(*objects).namespace("default")


@pytest.mark.parametrize(
    ("enforce", "modes"),
    [
        (Enforce.AUTO, {PluginMode.REGION, PluginMode.REGIONDEVEL}),
        (Enforce.ALWAYS, {PluginMode.AF, PluginMode.REGION, PluginMode.REGIONDEVEL}),
        (Enforce.NEVER, set()),
    ],
)
def test_mappings_are_asked_where_they_should(enforce: Enforce, modes: set[PluginMode]) -> None:
    assert {mode for mode in PluginMode if is_enforced(enforce, mode)} == modes


def test_functions_that_are_mapped_may_be_had() -> None:
    known = mappings(function("a", "region"), function("b", "region", afu=NLB3))
    require_mapped_functions(WantedFunctions(WHO, (NLB0, NLB3, NLB0), ARRIA), known)


@pytest.mark.parametrize(
    ("known", "interface"),
    [
        ((function("a", "region"),), ARRIA),
        ((function("b", "af", afu=NLB3), function("a", "region")), ARRIA),
        ((function("b", "region", afu=NLB3), function("a", "region")), STRATIX),
    ],
)
def test_functions_that_are_not_mapped_may_not(known: tuple[Object, ...], interface: str) -> None:
    with pytest.raises(NotMapped, match=r"wants AFU .* no AcceleratorFunction of mode region in"):
        require_mapped_functions(WantedFunctions(WHO, (NLB0, NLB3), interface), mappings(*known))


def test_a_resource_that_is_mapped_may_be_had() -> None:
    require_mapped_resource(WHO, AF_NLB0, mappings(function("a", "af")), PluginMode.AF)
    require_mapped_resource(WHO, REGION, mappings(region("r")), PluginMode.REGIONDEVEL)


@pytest.mark.parametrize(
    ("resource", "known", "mode", "kind"),
    [
        (AF_STRATIX_NLB3, (function("a", "af"),), PluginMode.AF, "AcceleratorFunction of mode af"),
        (REGION, (function("a", "region"),), PluginMode.REGIONDEVEL, "FpgaRegion"),
        (STRATIX_REGION, (region("r"),), PluginMode.REGIONDEVEL, "FpgaRegion"),
    ],
)
def test_a_resource_that_is_not_mapped_may_not(
    resource: str, known: tuple[Object, ...], mode: PluginMode, kind: str
) -> None:
    with pytest.raises(NotMapped, match=f"was given {resource}, and no {kind} in namespace def"):
        require_mapped_resource(WHO, resource, mappings(*known), mode)
