"""Shapes of the core types: the order of their fields, and how their lists merge.

One table serves four purposes, as the Go types do in a real API server: the order in which fields
are written (`arrange`), which empty fields are left out (`omitempty`), by what key list items are
told apart (strategic merge patches), and what counts as one owned value (`managed_fields`).
The orders are those of the structs in `k8s.io/api` (core/v1, admissionregistration/v1) and
`k8s.io/apimachinery` (meta/v1). A field that stands in no table is kept as it came, after those
that do: unlike a real API server, this one does not prune unknown fields of core types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value without structure. `keep_empty` marks a string that is written even when empty."""

    keep_empty: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields, in the order of the Go struct."""

    fields: Mapping[str, "Shape"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with free keys, written sorted. An atomic one is owned and replaced whole."""

    item: "Shape" = Leaf(keep_empty=True)
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list. With keys its items are told apart by them (one key merges patches); else atomic.

    Args:
        item: shape of its items.
        keys: fields that name an item; the first is the patch merge key.
        defaults: values of keys that may be absent.
        keep_empty: written even when empty.
    """

    item: "Shape" = Leaf(keep_empty=True)
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    keep_empty: bool = False


Shape: TypeAlias = Leaf | Struct | MapOf | ListOf
LEAF = Leaf()
FREE = Leaf(keep_empty=True)


def struct(names: str, /, **shapes: Shape) -> Struct:
    """A Struct from field names in order; those without a shape of their own are leaves."""
    return Struct({name: shapes.get(name, LEAF) for name in names.split()})


STRINGS = ListOf()
OWNER = struct("apiVersion kind name uid controller blockOwnerDeletion")
METADATA = struct(
    "name generateName namespace selfLink uid resourceVersion generation creationTimestamp"
    " deletionTimestamp deletionGracePeriodSeconds labels annotations ownerReferences finalizers"
    " managedFields",
    labels=MapOf(),
    annotations=MapOf(),
    ownerReferences=ListOf(OWNER, keys=("uid",)),
    managedFields=ListOf(
        struct("manager operation apiVersion time fieldsType fieldsV1 subresource", fieldsV1=FREE)
    ),
)
REQUIREMENT = struct("key operator values", values=STRINGS)
SELECTOR = struct(
    "matchLabels matchExpressions", matchLabels=MapOf(), matchExpressions=ListOf(REQUIREMENT)
)
CONDITION = struct(
    "type observedGeneration status lastHeartbeatTime lastProbeTime lastTransitionTime reason"
    " message"
)
CONDITIONS = ListOf(CONDITION, keys=("type",))

KEY_REFERENCE = struct("name key optional")
ENV_SOURCE = struct(
    "fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef",
    fieldRef=struct("apiVersion fieldPath"),
    resourceFieldRef=struct("containerName resource divisor"),
    configMapKeyRef=KEY_REFERENCE,
    secretKeyRef=KEY_REFERENCE,
    fileKeyRef=struct("volumeName path key optional"),
)
ENV = ListOf(struct("name value valueFrom", valueFrom=ENV_SOURCE), keys=("name",))
ENV_FROM = ListOf(
    struct(
        "prefix configMapRef secretRef",
        configMapRef=struct("name optional"),
        secretRef=struct("name optional"),
    )
)
RESOURCES = struct(
    "limits requests claims",
    limits=MapOf(),
    requests=MapOf(),
    claims=ListOf(struct("name request"), keys=("name",)),
)
PORTS = ListOf(
    struct("name hostPort containerPort protocol hostIP"),
    keys=("containerPort", "protocol"),
    defaults={"protocol": "TCP"},
)
HTTP_GET = struct("path port host scheme httpHeaders", httpHeaders=ListOf(struct("name value")))
HANDLERS = {
    "exec": struct("command", command=STRINGS),
    "httpGet": HTTP_GET,
    "tcpSocket": struct("port host"),
    "grpc": struct("port service"),
    "sleep": struct("seconds"),
}
PROBE = struct(
    "exec httpGet tcpSocket grpc initialDelaySeconds timeoutSeconds periodSeconds"
    " successThreshold failureThreshold terminationGracePeriodSeconds",
    **HANDLERS,
)
HANDLER = struct("exec httpGet tcpSocket sleep", **HANDLERS)
LIFECYCLE = struct("postStart preStop stopSignal", postStart=HANDLER, preStop=HANDLER)
SE_LINUX = struct("user role type level")
PROFILE = struct("type localhostProfile")
CONTAINER_SECURITY = struct(
    "capabilities privileged seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot"
    " readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile",
    capabilities=struct("add drop", add=STRINGS, drop=STRINGS),
    seLinuxOptions=SE_LINUX,
    seccompProfile=PROFILE,
    appArmorProfile=PROFILE,
)
POD_SECURITY = struct(
    "seLinuxOptions windowsOptions runAsUser runAsGroup runAsNonRoot supplementalGroups"
    " supplementalGroupsPolicy fsGroup sysctls fsGroupChangePolicy seccompProfile appArmorProfile"
    " seLinuxChangePolicy",
    seLinuxOptions=SE_LINUX,
    supplementalGroups=STRINGS,
    sysctls=ListOf(struct("name value")),
    seccompProfile=PROFILE,
    appArmorProfile=PROFILE,
)
CONTAINER = struct(
    "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy"
    " restartPolicyRules volumeMounts volumeDevices livenessProbe readinessProbe startupProbe"
    " lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext"
    " stdin stdinOnce tty",
    command=STRINGS,
    args=STRINGS,
    ports=PORTS,
    envFrom=ENV_FROM,
    env=ENV,
    resources=RESOURCES,
    resizePolicy=ListOf(struct("resourceName restartPolicy")),
    volumeMounts=ListOf(
        struct("name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr"),
        keys=("mountPath",),
    ),
    volumeDevices=ListOf(struct("name devicePath"), keys=("devicePath",)),
    livenessProbe=PROBE,
    readinessProbe=PROBE,
    startupProbe=PROBE,
    lifecycle=LIFECYCLE,
    securityContext=CONTAINER_SECURITY,
)
KEY_PATHS = ListOf(struct("key path mode"))
VOLUME = struct(
    "name hostPath emptyDir secret persistentVolumeClaim downwardAPI configMap projected csi"
    " ephemeral",
    hostPath=struct("path type"),
    emptyDir=struct("medium sizeLimit"),
    secret=struct("secretName items defaultMode optional", items=KEY_PATHS),
    persistentVolumeClaim=struct("claimName readOnly"),
    configMap=struct("name items defaultMode optional", items=KEY_PATHS),
    downwardAPI=struct("items defaultMode"),
    projected=struct("sources defaultMode"),
)
TOLERATIONS = ListOf(struct("key operator value effect tolerationSeconds"))
POD_SPEC = struct(
    "volumes initContainers containers ephemeralContainers restartPolicy"
    " terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector"
    " serviceAccountName serviceAccount automountServiceAccountToken nodeName hostNetwork hostPID"
    " hostIPC shareProcessNamespace securityContext imagePullSecrets hostname subdomain affinity"
    " schedulerName tolerations hostAliases priorityClassName priority dnsConfig readinessGates"
    " runtimeClassName enableServiceLinks preemptionPolicy overhead topologySpreadConstraints"
    " setHostnameAsFQDN os hostUsers schedulingGates resourceClaims resources",
    volumes=ListOf(VOLUME, keys=("name",)),
    initContainers=ListOf(CONTAINER, keys=("name",)),
    containers=ListOf(CONTAINER, keys=("name",), keep_empty=True),
    ephemeralContainers=ListOf(CONTAINER, keys=("name",)),
    nodeSelector=MapOf(atomic=True),
    securityContext=POD_SECURITY,
    imagePullSecrets=ListOf(struct("name"), keys=("name",)),
    tolerations=TOLERATIONS,
    hostAliases=ListOf(struct("ip hostnames"), keys=("ip",)),
    overhead=MapOf(),
    resources=RESOURCES,
)
CONTAINER_STATE = struct(
    "waiting running terminated",
    waiting=struct("reason message"),
    running=struct("startedAt"),
    terminated=struct("exitCode signal reason message startedAt finishedAt containerID"),
)
CONTAINER_STATUS = struct(
    "name state lastState ready restartCount image imageID containerID started"
    " allocatedResources resources volumeMounts user allocatedResourcesStatus stopSignal",
    state=CONTAINER_STATE,
    lastState=CONTAINER_STATE,
    image=FREE,
    imageID=FREE,
    allocatedResources=MapOf(),
    resources=RESOURCES,
    allocatedResourcesStatus=ListOf(
        struct("name resources", resources=ListOf(struct("resourceID health"))), keys=("name",)
    ),
)
CONTAINER_STATUSES = ListOf(CONTAINER_STATUS)
POD_STATUS = struct(
    "observedGeneration phase conditions message reason nominatedNodeName hostIP hostIPs podIP"
    " podIPs startTime initContainerStatuses containerStatuses qosClass"
    " ephemeralContainerStatuses resize resourceClaimStatuses",
    conditions=CONDITIONS,
    hostIPs=ListOf(struct("ip")),
    podIPs=ListOf(struct("ip"), keys=("ip",)),
    initContainerStatuses=CONTAINER_STATUSES,
    containerStatuses=CONTAINER_STATUSES,
    ephemeralContainerStatuses=CONTAINER_STATUSES,
)
NODE_SPEC = struct(
    "podCIDR podCIDRs providerID unschedulable taints configSource externalID",
    taints=ListOf(struct("key value effect timeAdded")),
)
NODE_STATUS = struct(
    "capacity allocatable phase conditions addresses daemonEndpoints nodeInfo images"
    " volumesInUse volumesAttached config runtimeHandlers features",
    capacity=MapOf(),
    allocatable=MapOf(),
    conditions=CONDITIONS,
    addresses=ListOf(struct("type address"), keys=("type",)),
    daemonEndpoints=struct("kubeletEndpoint", kubeletEndpoint=struct("Port")),
    nodeInfo=struct(
        "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion"
        " kubeProxyVersion operatingSystem architecture swap"
    ),
    images=ListOf(struct("names sizeBytes", names=STRINGS)),
)
OBJECT_REFERENCE = struct("kind namespace name uid apiVersion resourceVersion fieldPath")
CLIENT_CONFIG = struct("url service caBundle", service=struct("namespace name path port"))
RULES = ListOf(
    struct(
        "operations apiGroups apiVersions resources scope",
        operations=STRINGS,
        apiGroups=ListOf(FREE),
        apiVersions=STRINGS,
        resources=STRINGS,
    )
)


def _webhook(tail: str) -> Struct:
    return struct(
        "name clientConfig rules failurePolicy matchPolicy namespaceSelector objectSelector"
        f" sideEffects timeoutSeconds admissionReviewVersions {tail}",
        clientConfig=CLIENT_CONFIG,
        rules=RULES,
        namespaceSelector=SELECTOR,
        objectSelector=SELECTOR,
        admissionReviewVersions=STRINGS,
        matchConditions=ListOf(struct("name expression"), keys=("name",)),
    )


def _kind(names: str, **shapes: Shape) -> Struct:
    return struct(f"kind apiVersion metadata {names}", metadata=METADATA, **shapes)


POD = _kind("spec status", spec=POD_SPEC, status=POD_STATUS)
NODE = _kind("spec status", spec=NODE_SPEC, status=NODE_STATUS)
NAMESPACE = _kind(
    "spec status",
    spec=struct("finalizers", finalizers=STRINGS),
    status=struct("phase conditions", conditions=CONDITIONS),
)
EVENT = _kind(
    "involvedObject reason message source firstTimestamp lastTimestamp count type eventTime"
    " series action related reportingComponent reportingInstance",
    involvedObject=OBJECT_REFERENCE,
    source=struct("component host"),
    series=struct("count lastObservedTime"),
    related=OBJECT_REFERENCE,
    reportingComponent=FREE,
    reportingInstance=FREE,
)
SECRET = _kind("immutable data stringData type", data=MapOf(), stringData=MapOf())
MUTATING_WEBHOOKS = _kind(
    "webhooks", webhooks=ListOf(_webhook("reinvocationPolicy matchConditions"), keys=("name",))
)
VALIDATING_WEBHOOKS = _kind(
    "webhooks", webhooks=ListOf(_webhook("matchConditions"), keys=("name",))
)
CUSTOM = struct("apiVersion kind metadata", metadata=METADATA)
"""A custom resource: only its metadata has a known shape, and all its keys are written sorted."""


def arrange(shape: Shape, value: Any) -> Any:  # noqa: ANN401 - JSON of any kind
    """The value with its fields in order and its empty ones left out, as Go would write it.

    A value that does not have its field's shape is returned as it is; validation says so later.
    """
    match shape, value:
        case Struct(), dict():
            return _arrange_struct(shape, value)
        case MapOf(), dict():
            return {key: arrange(shape.item, value[key]) for key in sorted(value)}
        case ListOf(), list():
            return [arrange(shape.item, item) for item in value]
        case _:
            return value


def _arrange_struct(shape: Struct, value: dict[str, Any]) -> dict[str, Any]:
    arranged = {
        name: arrange(inner, value[name])
        for name, inner in shape.fields.items()
        if name in value and not _left_out(inner, value[name])
    }
    unknown = {name: item for name, item in value.items() if name not in shape.fields}
    return arranged | unknown


def _left_out(shape: Shape, value: object) -> bool:
    if value is None:
        return True
    match shape:
        case ListOf(keep_empty=False) | MapOf():
            return not value
        case Leaf(keep_empty=False):
            return value == ""
        case _:
            return False


def descend(shape: Shape, name: str) -> Shape:
    """The shape of one field of an object; a leaf where nothing is known."""
    match shape:
        case Struct():
            return shape.fields.get(name, FREE)
        case MapOf():
            return shape.item
        case _:
            return FREE


def item_key(shape: ListOf, item: object) -> tuple[Any, ...] | None:
    """What tells a list item from the others, or None where it has no such keys."""
    if not isinstance(item, dict):
        return None
    known = cast("dict[str, Any]", item)
    values = tuple(known.get(key, shape.defaults.get(key)) for key in shape.keys)
    return None if None in values else values
