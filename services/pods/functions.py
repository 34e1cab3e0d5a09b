"""The variables that say which function goes into which region: FPGA_REGION_<n>, FPGA_AFU_<n>.

On the node they decide what is programmed, so a pod may carry only those that its namespace's
mappings allow. The webhook writes them; a pod that already went through it has them when it comes
again, which is the only way that hand-written ones may look.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TypeAlias

import msgspec

from services.mappings.index import NamespaceMappings
from services.names import canonical_id
from services.pods.pod import EnvVar
from services.pods.refusals import MAX_REFUSALS
from services.process.text import plain, quote

Function: TypeAlias = tuple[str, str]
"""Interface id and AFU id of what goes into one region."""

RESERVED = b"FPGA_"
"""How the names of all variables begin that these rules are about."""

FUNCTION_VARIABLES = ("FPGA_REGION_{NUMBER}", "FPGA_AFU_{NUMBER}")
"""Interface id and AFU id of each function that a container wants in a region, counted from 1: the
webhook writes them, the plugin reads them from the pod's spec."""

_RESERVED = ("FPGA_REGION", "FPGA_AFU")
_FORM = re.compile(r"FPGA_(REGION|AFU)_([1-9][0-9]{0,8})")
_NO_SOURCE = b"null"


class WrittenFunctions(msgspec.Struct, frozen=True):
    """The functions that a container's env spells when it reaches us.

    Attributes:
        by_number: the functions by the number in the variables' names.
        problems: a phrase for each variable that may not stay, to go on after ``container "c0"``;
            no more of them than a refusal tells.
    """

    by_number: dict[int, Function] = {}
    problems: list[str] = []


def read_functions(variables: Iterable[EnvVar], *, other_forms: bool = False) -> WrittenFunctions:
    """Read the functions that env spells, as the webhook and the node do.

    Args:
        variables: the container's env, in order.
        other_forms: whether a variable may begin as ours do and have another form; it says nothing.
    """
    values: dict[str, dict[int, str]] = {"REGION": {}, "AFU": {}}
    found = _unreadable(variables, values, other_forms=other_forms)
    problems = list(islice(found, MAX_REFUSALS))
    if problems:
        return WrittenFunctions(problems=problems)
    regions, afus = values["REGION"], values["AFU"]
    functions = {number: (regions[number], afus[number]) for number in regions if number in afus}
    return WrittenFunctions(functions, list(islice(_unpaired(regions, afus), MAX_REFUSALS)))


def check_functions(
    variables: Iterable[EnvVar], mappings: NamespaceMappings, units: Mapping[str, int]
) -> WrittenFunctions:
    """Read the functions that env spells, and check that this container may have them.

    Args:
        variables: the container's env, in order.
        mappings: those of its namespace.
        units: how many units of each physical name (without domain) the container asks for.
    """
    written = read_functions(variables)
    functions = written.by_number
    mapped = {number: pair for number, pair in functions.items() if pair in mappings.pairs}
    found = chain(
        written.problems,
        _not_mapped(functions, mappings),
        _not_covered(mapped, units),
    )
    problems = list(islice(found, MAX_REFUSALS))
    return WrittenFunctions(problems=problems) if problems else written


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
        region, afu = _NAMES[number] if number < _FEW else _names(number)
        variables.append({"name": region, "value": interface_id})
        variables.append({"name": afu, "value": afu_id})
    return variables


def _names(number: int) -> tuple[str, str]:
    """Return the names of the two variables for a function."""
    region, function = FUNCTION_VARIABLES
    return region.format(NUMBER=number), function.format(NUMBER=number)


_FEW = 65  # numbers up to the usual limit of units
_NAMES = [_names(number) for number in range(_FEW)]


def _unreadable(
    variables: Iterable[EnvVar], values: dict[str, dict[int, str]], *, other_forms: bool
) -> Iterator[str]:
    """Put the variables into `values`, by kind and number, and yield what is wrong with them."""
    for variable in variables:
        if not variable.name.startswith(_RESERVED):
            continue
        match = _FORM.fullmatch(variable.name)
        if not match:
            if not other_forms:
                yield (
                    f"sets {plain(variable.name)}, but names that start with FPGA_REGION or"
                    " FPGA_AFU are accelbind's own: rename it, or ask for a function by its"
                    " logical name"
                )
        elif bytes(variable.value_from) != _NO_SOURCE or not variable.value:
            yield (
                f"sets {variable.name}, but not to a plain value: leave it out, and ask for a "
                "function by its logical name"
            )
        elif int(match[2]) in values[match[1]]:
            yield f"sets {variable.name}, and sets it twice"
        else:
            values[match[1]][int(match[2])] = canonical_id(variable.value)


def _unpaired(regions: dict[int, str], afus: dict[int, str]) -> Iterator[str]:
    for number in regions:
        if number not in afus:
            yield f"sets FPGA_REGION_{number} without FPGA_AFU_{number}"
    for number in afus:
        if number not in regions:
            yield f"sets FPGA_AFU_{number} without FPGA_REGION_{number}"


def _not_mapped(functions: Mapping[int, Function], mappings: NamespaceMappings) -> Iterator[str]:
    for number, (region, afu) in functions.items():
        if (region, afu) not in mappings.pairs:
            yield (
                f"sets FPGA_AFU_{number} to {quote(afu)} and FPGA_REGION_{number} to "
                f"{quote(region)}, a function that no mapping of mode region in namespace "
                f"{quote(mappings.namespace)} has: leave the variables out, and ask for a "
                "function by its logical name"
            )


def _not_covered(functions: Mapping[int, Function], units: Mapping[str, int]) -> Iterator[str]:
    counted = Counter(region for region, _ in functions.values())
    for region, wanted in counted.items():
        asked = units.get(f"region-{region}", 0)
        if wanted > asked:
            last = max(number for number, function in functions.items() if function[0] == region)
            yield (
                f"sets FPGA_REGION_{last}, but asks for only {asked} of region-{region} by that "
                f"name and spells {wanted} functions for it: leave the variables out, accelbind "
                "sets them for every function that is asked for by its logical name"
            )
