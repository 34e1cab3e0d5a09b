"""The variables that say which function goes into which region: FPGA_REGION_<n>, FPGA_AFU_<n>.

On the node they decide what is programmed, so a pod may carry only those that its namespace's
mappings allow. The webhook writes them; a pod that already went through it has them when it comes
again, which is the only way that hand-written ones may look.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from services.domain.mappings import NamespaceMappings
from services.domain.pod import EnvVar
from services.domain.text import plain, quote

Function: TypeAlias = tuple[str, str]
"""Interface id and AFU id of what goes into one region."""

RESERVED = b"FPGA_"
"""How the names of all variables begin that these rules are about."""

_RESERVED = ("FPGA_REGION", "FPGA_AFU")
_FORM = re.compile(r"FPGA_(REGION|AFU)_([1-9][0-9]{0,8})")
_NO_SOURCE = b"null"


@dataclass(slots=True)
class WrittenFunctions:
    """The functions that a container's env spells when it reaches us.

    Attributes:
        by_number: the functions by the number in the variables' names.
        problems: a phrase for each variable that may not stay, to go on after ``container "c0"``.
    """

    by_number: dict[int, Function] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_functions(
    variables: Iterable[EnvVar], mappings: NamespaceMappings, units: Mapping[str, int]
) -> WrittenFunctions:
    """Read the functions that env spells, and check that this container may have them.

    Args:
        variables: the container's env, in order.
        mappings: those of its namespace.
        units: how many units of each physical name (without domain) the container asks for.
    """
    result = WrittenFunctions()
    values: dict[str, dict[int, str]] = {"REGION": {}, "AFU": {}}
    for variable in variables:
        if variable.name.startswith(_RESERVED):
            problem = _read(variable, values)
            if problem:
                result.problems.append(f"sets {plain(variable.name)}, {problem}")
    if result.problems:
        return result
    regions, afus = values["REGION"], values["AFU"]
    for number in sorted(regions.keys() ^ afus.keys()):
        kind, partner = ("REGION", "AFU") if number in regions else ("AFU", "REGION")
        result.problems.append(f"sets FPGA_{kind}_{number} without FPGA_{partner}_{number}")
    for number in sorted(regions.keys() & afus.keys()):
        result.by_number[number] = (regions[number], afus[number])
    result.problems += _not_mapped(result.by_number, mappings)
    result.problems += _not_covered(result.by_number, units)
    return result


def new_variables(functions: Iterable[Function], taken: Iterable[int]) -> list[dict[str, str]]:
    """Return the variables for more functions, under the lowest numbers that are free.

    Args:
        functions: one for each unit, in order.
        taken: the numbers that the container's env has already.
    """
    used = set(taken)
    variables = []
    number = 0
    for interface_id, afu_id in functions:
        number += 1
        while number in used:
            number += 1
        variables.append({"name": f"FPGA_REGION_{number}", "value": interface_id})
        variables.append({"name": f"FPGA_AFU_{number}", "value": afu_id})
    return variables


def _read(variable: EnvVar, values: dict[str, dict[int, str]]) -> str | None:
    """Take one variable into `values`, or say why it may not be there."""
    match = _FORM.fullmatch(variable.name)
    if not match:
        return (
            "but names that start with FPGA_REGION or FPGA_AFU are accelbind's own: "
            "rename it, or ask for a function by its logical name"
        )
    if bytes(variable.value_from) != _NO_SOURCE or not variable.value:
        return "but not to a plain value: leave it out, and ask for a function by its logical name"
    number = int(match[2])
    if number in values[match[1]]:
        return "and sets it twice"
    values[match[1]][number] = variable.value
    return None


def _not_mapped(functions: Mapping[int, Function], mappings: NamespaceMappings) -> Iterable[str]:
    for number, (region, afu) in functions.items():
        if (region, afu) not in mappings.pairs:
            yield (
                f"sets FPGA_AFU_{number} to {quote(afu, 40)} and FPGA_REGION_{number} to "
                f"{quote(region, 40)}, a function that no mapping of mode region in namespace "
                f"{quote(mappings.namespace, 63)} has: leave the variables out, and ask for a "
                "function by its logical name"
            )


def _not_covered(functions: Mapping[int, Function], units: Mapping[str, int]) -> Iterable[str]:
    counted = Counter(region for region, _ in functions.values())
    for region, wanted in counted.items():
        asked = units.get(f"region-{region}", 0)
        if wanted > asked:
            last = max(number for number, function in functions.items() if function[0] == region)
            yield (
                f"sets FPGA_REGION_{last}, the variable of a region more than it asks for: "
                f"{wanted} of its variables name region {quote(region, 40)}, and it asks for "
                f"{asked} of region-{plain(region, 40)}: leave the variables out"
            )
