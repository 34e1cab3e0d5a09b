"""Reasons, Events, exit codes, gRPC codes and names, from the enums and tables of the code."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Final

from accelbind.exits import Exit
from plugin import messages, node_mode
from services.admission import mapping_review, pod_review, review
from services.admission.mutate import AGAIN, REASON, REWRITES, REWRITTEN, UnchangedReason
from services.admission.review import ReviewOutcome
from services.devices import allocation
from services.devices.reasons import REASONS, Effect
from services.kube import objects
from services.mappings import model as mappings
from services.node import error_clearing as clearing
from services.node.event_reasons import EventReason, event_reason
from services.pods import functions as env_rules
from services.pods import pod
from services.pods.refusals import RefusalReason
from services.process.errors import AccelbindError
from services.programming.error_registers import ClearResult
from tools.docs.texts import attribute_docstrings, code, members, table
from webhook.endpoints import ENDPOINTS
from webhook.handler import REJECTED, RejectionReason
from webhook.ledger import EvictionReason
from webhook.limits import CLIENT_REFUSALS

_REASON: Final = "Reason: "


def admission() -> Iterator[str]:
    """How reviews are answered, and why."""
    paths: dict[str, list[str]] = {}
    for path, endpoint in ENDPOINTS.items():
        paths.setdefault(endpoint.name, []).append(code(path))
    yield table(("endpoint", "paths"), ((code(name), ", ".join(of)) for name, of in paths.items()))
    outcomes = [(code(each), text) for each, text in members(ReviewOutcome)]
    outcomes.append((code(REJECTED), "No judgement: answered with a 4xx or 503 and a Status."))
    yield table(("outcome", "what it is"), outcomes)
    yield "Reasons of pods:\n\n" + table(("reason", "outcome", "what it is"), _of_pods())
    yield "What the audit log has of a pod:\n\n" + table(("annotation", "what it is"), _audit())
    yield "Reasons of mappings:\n\n" + table(("reason", "what it is"), stated(mapping_review))
    yield "Clients that `--client-ca` refuses:\n\n" + table(
        ("reason", "what it is"), ((code(each), text) for each, text in CLIENT_REFUSALS.items())
    )
    yield "Connections that the webhook closes to stay within its limits:\n\n" + table(
        ("reason", "what it is"), ((code(each), text) for each, text in members(EvictionReason))
    )


def _of_pods() -> Iterator[tuple[str, str, str]]:
    yield from ((code(each), code("allowed"), text) for each, text in members(UnchangedReason))
    yield from ((code(each), code("denied"), text) for each, text in members(RefusalReason))
    for name, text in (*stated(pod_review), *stated(review)):
        found = re.search(r"(admitted|denied)", text)
        outcome = {"admitted": "allowed", "denied": "denied"}[found[1]] if found else "errored"
        yield name, code(outcome), text
    yield from ((code(each), code(REJECTED), text) for each, text in members(RejectionReason))
    yield code(REWRITTEN), "", f"In the audit log only, of a patched pod, beside `{REWRITES}`."


def _audit() -> Iterator[tuple[str, str]]:
    """The annotations, which an API server puts the webhook's name before."""
    yield code(REASON), "Why it was answered so; several of a refusal, with commas."
    yield code(REWRITES), "Each name that it replaced: container, number, and what by."
    yield (
        f"{code(REASON + AGAIN)}, {code(REWRITES + AGAIN)}",
        f"The same of a pod that comes with `{pod.REQUESTED_ANNOTATION}`: once more, or copied.",
    )


def stated(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The constants of a module that are reasons, as their docstrings say."""
    for name, text in attribute_docstrings(module).items():
        if text.startswith(_REASON):
            said = text.removeprefix(_REASON)
            yield code(getattr(module, name)), said[:1].upper() + said[1:]


def health() -> Iterator[str]:
    """Why a device isn't healthy, and what else is said of cards."""
    yield table(("effect", "what it is"), ((each.value, text) for each, text in members(Effect)))
    yield table(
        ("reason", "effect", "what is the case", "what to do"),
        (
            (code(name), each.effect.value, each.meaning, each.todo)
            for name, each in REASONS.items()
        ),
    )
    yield "Outcomes of clearing errors (`accelbind_errors_cleared_total`):\n\n" + table(
        ("outcome", "what it is"),
        (
            *((code(each), text) for each, text in members(ClearResult)),
            (code(clearing.HUNG), attribute_docstrings(clearing)["HUNG"]),
        ),
    )


def events() -> str:
    """Kubernetes Events."""
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
    return table(("reason", "type", "on a", "when"), rows)


def exits() -> str:
    """Exit codes."""
    return table(("code", "what it means"), ((code(str(int(e))), t) for e, t in members(Exit)))


def errors() -> str:
    """What becomes of each kind of error at the plugin's gRPC calls."""
    rows = [(code(kind.__name__), code(each.name), _first(kind)) for kind, each in messages.CODES]
    other = attribute_docstrings(messages)["OTHER_CODE"]
    rows.append(("any other of these", code(messages.OTHER_CODE.name), other))
    mistake = attribute_docstrings(messages)["INTERNAL_CODE"]
    rows.append(("none of these", code(messages.INTERNAL_CODE.name), mistake))
    return table(("error, the first that fits", "code", "what it is"), rows)


def _first(kind: type[AccelbindError]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


_NAMES: Final = (
    ("annotation of a node, read", node_mode, "ANNOTATION"),
    ("annotation of a mapping, read", mappings, "DEPRECATED"),
    ("annotation of a mapping, written", mapping_review, "RESOURCE"),
    ("annotation of a pod, written", pod, "REQUESTED_ANNOTATION"),
    ("annotation of a pod, read", pod, "MIRROR_ANNOTATION"),
    ("annotation of a container, written", allocation, "HOOK_ANNOTATION"),
    ("annotation of a webhook configuration, read", objects, "INJECTED"),
    ("variables of a container, read and written", env_rules, "FUNCTION_VARIABLES"),
    ("variables of a container, written", allocation, "UNIT_VARIABLES"),
    ("variables of a container, written", allocation, "ADDRESS_VARIABLE"),
)
"""Where the names are that stand in objects of others: what they are, module, constant."""


def names() -> str:
    """Annotations and variables that the suite reads or writes."""
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
    return table(("name", "where", "what it is"), rows)
