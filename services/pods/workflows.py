"""Pods of Argo Workflows, whose templates have a shape of their own.

Source: https://argo-workflows.readthedocs.io/en/latest/fields/#template
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from services.process.objects import Object
from services.process.text import words

_SHARED: Final = words(
    "affinity nodeSelector priorityClassName schedulerName securityContext serviceAccountName"
    " tolerations"
)
"""Fields of a Workflow, and of its templates, that its pods have too."""
_KINDS: Final = ("container", "script", "containerSet")
"""The fields of which one makes a template a pod."""
_PATCH: Final = "podSpecPatch"


class Template(NamedTuple):
    """A template of a pod."""

    place: str
    """Where it is in its object; empty if it is the object."""
    manifest: Object
    unread: tuple[str, ...] = ()
    """As for `FoundPod`."""
    namespace: object = None
    """Of the innermost object that has it; None if that is the whole, or names none."""


def in_workflow(spec: Object, place: str) -> Iterator[Template]:
    """Yield the pods of an object with templates of Argo, without what Argo adds to them."""
    defaults = spec.get("templateDefaults")
    templates = [
        found
        for number, each in enumerate(items_of(spec.get("templates")))
        for found in _with_inline(each, f"{place}.templates[{number}]")
    ]
    # Objects that Argo makes of a text, in which its parameters may be.
    of_all = [f"{at}.resource" for at, each in templates if each.get("resource")]
    of_all += [f"{place}.{_PATCH}"] if spec.get(_PATCH) else []
    for at, template in templates:
        merged = _merged(defaults, template) if isinstance(defaults, dict) else template
        # Defaults for another kind of template don't apply.
        kind = next((name for name in _KINDS if isinstance(template.get(name), dict)), "")
        if containers := _containers(kind, merged):
            unread = [*of_all, *([f"{at}.{_PATCH}"] if merged.get(_PATCH) else ())]
            yield Template(at, _pod(spec, merged, containers), tuple(unread))


def items_of(value: object) -> list[Any]:
    """The items of a list; none if it isn't one."""
    return value if isinstance(value, list) else []


def _with_inline(template: object, place: str) -> Iterator[tuple[str, Object]]:
    """Yield a template, and those that stand in its steps and tasks."""
    if not isinstance(template, dict):
        return
    yield place, template
    dag = template.get("dag")
    tasks = items_of(dag.get("tasks") if isinstance(dag, dict) else None)
    for number, group in enumerate(items_of(template.get("steps"))):
        for index, step in enumerate(items_of(group)):
            if isinstance(step, dict):
                yield from _with_inline(
                    step.get("inline"), f"{place}.steps[{number}][{index}].inline"
                )
    for number, task in enumerate(tasks):
        if isinstance(task, dict):
            yield from _with_inline(task.get("inline"), f"{place}.dag.tasks[{number}].inline")


def _merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """An object with defaults, also for the objects in it; its own lists stay as they are."""
    merged = {**defaults, **own}
    for key in defaults.keys() & own.keys():
        if isinstance(defaults[key], dict) and isinstance(own[key], dict):
            merged[key] = _merged(defaults[key], own[key])
    return merged


def _containers(kind: str, template: Mapping[str, Any]) -> list[Any]:
    if not kind:
        return []
    main = template[kind]
    if kind == "containerSet":
        return items_of(main.get("containers"))
    own = {key: each for key, each in main.items() if key != "source"}
    return [{"name": "main"} | own, *items_of(template.get("sidecars"))]


def _pod(spec: Object, template: Mapping[str, Any], containers: list[Any]) -> Object:
    parts = (spec, template)
    shared = {key: each for part in parts for key, each in part.items() if key in _SHARED}
    lists = {
        "volumes": [each for part in parts for each in items_of(part.get("volumes"))],
        "containers": containers,
        "initContainers": items_of(template.get("initContainers")),
    }
    # An API server drops empty ones, which would look like a change of the pod.
    filled = {key: each for key, each in lists.items() if each}
    return {
        "metadata": template.get("metadata"),
        "spec": {"restartPolicy": "Never", **shared, **filled},
    }
