"""The variables that name the function for each region: FPGA_REGION_<n> and FPGA_AFU_<n>.

The webhook writes them. On the node they decide what is programmed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice

import msgspec

from services.mappings.index import NamespaceMappings
from services.mappings.model import Function
from services.names import canonical_id, region_name
from services.pods.pod import EnvVar
from services.pods.refusals import MAX_REFUSALS
from services.process.text import count, plain, quote

RESERVED = b"FPGA_"
"""The prefix of the names of all variables that these rules are about."""

FUNCTION_VARIABLES = ("FPGA_REGION_{NUMBER}", "FPGA_AFU_{NUMBER}")
"""Interface ID and AFU ID of each function that a container wants in a region, counted from 1: the
webhook writes them, the plugin reads them from the pod's spec."""

_RESERVED = ("FPGA_REGION", "FPGA_AFU")
_FORM = re.compile(r"FPGA_(REGION|AFU)_([1-9][0-9]{0,8})")
_NO_SOURCE = b"null"
_ADVICE = "request a function by its logical name"


class WrittenFunctions(msgspec.Struct, frozen=True):
    """The functions that a container's env names when the pod is reviewed."""

    by_number: dict[int, Function] = {}
    """By the number in the variables' names."""
    problems: list[str] = []
    """A sentence for each variable that isn't allowed, at most `MAX_REFUSALS`."""


def read_functions(variables: Iterable[EnvVar], *, other_forms: bool = False) -> WrittenFunctions:
    """Read the functions that env names, for the webhook and for the node.

    With `other_forms`, a reserved name of another form is ignored rather than a problem.
    """
    values: dict[str, dict[int, str]] = {"REGION": {}, "AFU": {}}
    refusals = _unreadable(variables, values, other_forms=other_forms)
    problems = list(islice(refusals, MAX_REFUSALS))
    if problems:
        return WrittenFunctions(problems=problems)
    regions, afus = values["REGION"], values["AFU"]
    functions = {number: (regions[number], afus[number]) for number in regions if number in afus}
    return WrittenFunctions(functions, list(islice(_unpaired(regions, afus), MAX_REFUSALS)))


def permitted_functions(
    variables: Iterable[EnvVar], mappings: NamespaceMappings, units: Mapping[str, int]
) -> WrittenFunctions:
    """Read the functions that env names, and check that this container may have them.

    `units` are those that the container requests, by physical name without domain.
    """
    # A pod that was mutated before has variables of ours. Those written by hand look the same, and
    # are accepted only if the mappings of the namespace allow them.
    written = read_functions(variables)
    functions = written.by_number
    mapped = {number: each for number, each in functions.items() if each in mappings.functions}
    refusals = chain(
        written.problems,
        _not_mapped(functions, mappings),
        _not_covered(mapped, units),
    )
    problems = list(islice(refusals, MAX_REFUSALS))
    return WrittenFunctions(problems=problems) if problems else written


def new_variables(functions: Iterable[Function], taken: Iterable[int]) -> list[dict[str, str]]:
    """Return the variables for one more unit of each function, with the lowest free numbers."""
    used = set(taken)
    variables = []
    number = 0
    for function in functions:
        number += 1
        while number in used:
            number += 1
        for name, value in zip(FUNCTION_VARIABLES, function, strict=True):
            variables.append({"name": name.format(NUMBER=number), "value": value})
    return variables


def _unreadable(
    variables: Iterable[EnvVar], values: dict[str, dict[int, str]], *, other_forms: bool
) -> Iterator[str]:
    """Put the variables into `values`, by kind and number, and yield the problems of the others."""
    for variable in variables:
        if not variable.name.startswith(_RESERVED):
            continue
        match = _FORM.fullmatch(variable.name)
        if not match:
            if not other_forms:
                yield (
                    f"{plain(variable.name)} is reserved, as all variables that start with"
                    f" FPGA_REGION or FPGA_AFU: rename it, or {_ADVICE}"
                )
        elif bytes(variable.value_from) != _NO_SOURCE or not variable.value:
            # What a reference stands for is known on the node only.
            yield f"{variable.name} has no plain value: remove it, and {_ADVICE}"
        elif int(match[2]) in values[match[1]]:
            yield f"{variable.name} is set twice"
        else:
            values[match[1]][int(match[2])] = canonical_id(variable.value)


def _unpaired(regions: dict[int, str], afus: dict[int, str]) -> Iterator[str]:
    for number in regions:
        if number not in afus:
            yield f"FPGA_REGION_{number} is set without FPGA_AFU_{number}"
    for number in afus:
        if number not in regions:
            yield f"FPGA_AFU_{number} is set without FPGA_REGION_{number}"


def _not_mapped(functions: Mapping[int, Function], mappings: NamespaceMappings) -> Iterator[str]:
    for number, (region, afu) in functions.items():
        if (region, afu) not in mappings.functions:
            yield (
                f"FPGA_AFU_{number}={quote(afu)} and FPGA_REGION_{number}={quote(region)} name a "
                "function that no mapping of mode region has in namespace "
                f"{quote(mappings.namespace)}: remove the variables, and {_ADVICE}"
            )


def _not_covered(functions: Mapping[int, Function], units: Mapping[str, int]) -> Iterator[str]:
    counted = Counter(region for region, _ in functions.values())
    for region, named in counted.items():
        requested = units.get(region_name(region), 0)
        if named > requested:
            last = max(number for number, function in functions.items() if function[0] == region)
            yield (
                f"the variables up to FPGA_REGION_{last} name {count(named, 'function')} for"
                f" region-{region}, but the container requests only {count(requested, 'unit')} by"
                " that name: remove the variables, accelbind sets them for functions requested by"
                " logical name"
            )
