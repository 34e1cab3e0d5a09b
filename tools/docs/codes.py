"""Tables of reasons, Events, exit codes, gRPC codes and names, from enums of the code."""

import inspect
from collections.abc import Iterator
from typing import Final

from accelbind.output import Exit
from plugin import mode
from plugin.device_plugin import server
from services import names as ids
from services.admission.mutate import AGAIN, REASON, REWRITES, REWRITTEN
from services.devices import cdi
from services.devices.nodes import ALLOWED_MISC, DENIED
from services.devices.reasons import REASONS, Effect
from services.kube import objects
from services.mappings import model as mappings
from services.node.events import EventReason, event_reason
from services.pods import functions, pod
from services.pods.reasons import ReviewOutcome, ReviewReason
from services.process.errors import AccelbindError
from services.programming.error_registers import ClearResult
from tools.docs.texts import attribute_docstrings, code, members, table
from webhook.app import ENDPOINTS


def admission() -> Iterator[str]:
    paths: dict[str, list[str]] = {}
    for path, endpoint in ENDPOINTS.items():
        paths.setdefault(endpoint.name, []).append(code(path))
    yield table(("endpoint", "paths"), ((code(name), ", ".join(of)) for name, of in paths.items()))
    outcomes = ((code(each), text) for each, text in members(ReviewOutcome))
    yield table(("outcome", "meaning"), outcomes)
    yield "Reasons of pods:\n\n" + table(("reason", "outcome", "meaning"), _of_pods())
    yield "Annotations of a pod in the audit log:\n\n" + table(("annotation", "meaning"), _audit())
    yield "Reasons of mappings:\n\n" + table(
        ("reason", "meaning"),
        ((code(each), text) for each, text in members(ReviewReason) if each.about == "mapping"),
    )


def _of_pods() -> Iterator[tuple[str, str, str]]:
    for each, text in members(ReviewReason):
        if each.about != "mapping":
            yield code(each), code(each.outcome), text
    yield code(REWRITTEN), "", f"Only in the audit log, for a patched pod, with `{REWRITES}`."


def _audit() -> Iterator[tuple[str, str]]:
    """Yield the annotations. An API server prefixes them with the webhook's name."""
    yield code(REASON), "Reason of the answer; a refusal may have several, separated by commas."
    yield code(REWRITES), "Each name that was replaced: container, quantity, new name."
    yield (
        f"{code(REASON + AGAIN)}, {code(REWRITES + AGAIN)}",
        f"The same for a pod that has `{pod.REQUESTED_ANNOTATION}`: reviewed again, or copied.",
    )


def health() -> Iterator[str]:
    yield table(("effect", "meaning"), ((each.value, text) for each, text in members(Effect)))
    yield table(
        ("reason", "effect", "cause", "what to do"),
        (
            (code(name), each.effect.value, each.meaning, each.todo)
            for name, each in REASONS.items()
        ),
    )
    yield "Outcomes of clearing errors (`accelbind_errors_cleared_total`):\n\n" + table(
        ("outcome", "meaning"), ((code(each), text) for each, text in members(ClearResult))
    )


def nodes() -> Iterator[str]:
    """Yield which device nodes are not handed out, and which of class misc are."""
    rows = (
        (
            ", ".join(map(code, sorted(each.classes))),
            ", ".join(map(code, sorted(each.examples))),
            each.why,
            code(f"--allow-nodes={each.setting}") if each.setting else "nothing",
        )
        for each in DENIED
    )
    yield table(("classes", "nodes such as", "why", "what allows them"), rows)
    listed = ", ".join(map(code, sorted(ALLOWED_MISC)))
    yield f"Of class `misc`, these are handed out: {listed}.\n"


def events() -> str:
    rows = [
        (code(each), "Warning" if each.warning else "Normal", each.kind, text)
        for each, text in members(EventReason)
    ]
    for name, each in REASONS.items():
        if each.effect in (Effect.NODE, Effect.CARD):
            rows.append(
                (
                    code(event_reason(name)),
                    "Warning",
                    "Node",
                    f"{each.meaning[:1].upper()}{each.meaning[1:]}.",
                )
            )
    return table(("reason", "type", "object", "when"), rows)


def exits() -> str:
    return table(("code", "meaning"), ((code(str(int(e))), t) for e, t in members(Exit)))


def errors() -> str:
    """Return the gRPC code of each kind of error."""
    rows = [(code(kind.__name__), code(each.name), _first(kind)) for kind, each in server.CODES]
    other = attribute_docstrings(server)["OTHER_CODE"]
    rows.append(("any other of these", code(server.OTHER_CODE.name), other))
    internal = attribute_docstrings(server)["INTERNAL_CODE"]
    rows.append(("none of these", code(server.INTERNAL_CODE.name), internal))
    return table(("error (first match)", "code", "meaning"), rows)


def _first(kind: type[AccelbindError]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


_NAMES: Final = (
    ("annotation of a node, read", mode, "ANNOTATION"),
    ("annotation of a mapping, read", mappings, "DEPRECATED"),
    ("annotation of a pod, written", pod, "REQUESTED_ANNOTATION"),
    ("annotation of a pod, read", pod, "MIRROR_ANNOTATION"),
    ("annotation of a pod, read", pod, "CONFIG_HASH_ANNOTATION"),
    ("annotation of a webhook configuration, read", objects, "BUNDLE_WRITERS"),
    ("variables of a container, read and written", functions, "FUNCTION_VARIABLES"),
    ("variables of a container, written", ids, "UNIT_VARIABLES"),
    ("variables of a container, written", ids, "ADDRESS_VARIABLE"),
    ("kind of CDI devices of FPGAs, written", cdi, "KIND"),
    ("kind of CDI devices of device types, written", cdi, "DEVICE_KIND"),
    ("kind of CDI devices of claims, written", cdi, "CLAIM_KIND"),
    ("annotation of CDI files of claims, written and read", cdi, "NOTE"),
)
"""Names in objects of others: what they are, module, constant."""


def names() -> str:
    """Return the table of annotations and variables that accelbind reads or writes."""
    rows = []
    for what, module, constant in _NAMES:
        value = getattr(module, constant)
        if isinstance(value, str):
            shown = code(value)
        elif isinstance(value, tuple):
            shown = ", ".join(map(code, value))
        else:
            shown = ", ".join(code(f"{name}: {text}") for name, text in value.items())
        rows.append((shown, what, attribute_docstrings(module)[constant]))
    return table(("name", "where", "meaning"), rows)
