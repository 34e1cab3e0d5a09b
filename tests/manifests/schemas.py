"""Schemas of the kinds that are not Kubernetes' own: the fields that we use, and no other.

Written from the reference of each project, since no package that can be installed beside pytest has
them. What they let through was held once against the models of the Prometheus operator 0.80 and of
cert-manager 1.17, which took it unchanged.
"""

from typing import Any, Final

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string", "minLength": 1}
LABEL: Final[Json] = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
TEXTS: Final[Json] = {"type": "array", "items": TEXT, "minItems": 1}
MAP: Final[Json] = {"type": "object", "additionalProperties": {"type": "string"}}
PROMETHEUS_DURATION: Final[Json] = {
    "type": "string",
    "pattern": r"^(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?$",
    "minLength": 1,
}
GO_DURATION: Final[Json] = {"type": "string", "pattern": r"^([0-9]+(h|m|s))+$"}


def closed(required: tuple[str, ...], **properties: Json) -> Json:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


METADATA: Final = closed(
    ("name", "namespace"), name=TEXT, namespace=TEXT, labels=MAP, annotations=MAP
)


CLUSTER_METADATA: Final = closed(("name",), name=TEXT, labels=MAP, annotations=MAP)


def kind(api_version: str, name: str, spec: Json, metadata: Json = METADATA) -> Json:
    """A kind with its envelope."""
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": api_version},
        kind={"const": name},
        metadata=metadata,
        spec=spec,
    )


SELECTOR: Final = closed(
    (),
    matchLabels=MAP,
    matchExpressions={
        "type": "array",
        "items": closed(
            ("key", "operator"),
            key=TEXT,
            operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            values=TEXTS,
        ),
    },
)
ENDPOINT: Final = closed(
    ("port",),
    port=TEXT,
    path=TEXT,
    interval=PROMETHEUS_DURATION,
    relabelings={
        "type": "array",
        "items": closed(
            ("action",),
            action={"enum": ["replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep"]},
            sourceLabels={"type": "array", "items": LABEL},
            targetLabel=LABEL,
            regex=TEXT,
            replacement=TEXT,
        ),
    },
)
ENDPOINTS: Final[Json] = {"type": "array", "items": ENDPOINT, "minItems": 1}
RULE: Final = closed(
    ("alert", "expr", "labels", "annotations"),
    alert={"type": "string", "pattern": "^[A-Z][A-Za-z]+$"},
    expr=TEXT,
    **{"for": PROMETHEUS_DURATION},
    labels=closed(("severity",), severity={"enum": ["info", "warning", "critical"]}),
    annotations=closed(
        ("summary", "description", "runbook"), summary=TEXT, description=TEXT, runbook=TEXT
    ),
)
GROUP: Final = closed(
    ("name", "rules"), name=TEXT, rules={"type": "array", "items": RULE, "minItems": 1}
)
ISSUER_REF: Final = closed(
    ("name",), name=TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, group=TEXT
)
CERTIFICATE: Final = closed(
    ("secretName", "issuerRef"),
    secretName=TEXT,
    issuerRef=ISSUER_REF,
    isCA={"type": "boolean"},
    commonName={"type": "string", "maxLength": 64},
    dnsNames=TEXTS,
    duration=GO_DURATION,
    renewBefore=GO_DURATION,
    usages={
        "type": "array",
        "items": {"enum": ["digital signature", "server auth", "cert sign"]},
    },
    privateKey=closed(
        (),
        algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
        size={"enum": [256, 384, 521, 2048, 4096]},
        rotationPolicy={"enum": ["Never", "Always"]},
    ),
)
ISSUER: Final[Json] = {
    **closed((), selfSigned=closed(()), ca=closed(("secretName",), secretName=TEXT)),
    "minProperties": 1,
    "maxProperties": 1,
}

FLAG: Final[Json] = {"type": "boolean"}
ALLOWANCES: Final = (
    *("allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID"),
    *("allowHostPorts", "allowPrivilegeEscalation", "allowPrivilegedContainer"),
)
RUN_AS: Final = closed(("type",), type={"enum": ["RunAsAny"]})
PCI_ID: Final = closed(
    ("op", "value"),
    op={"const": "In"},
    value={"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[0-9a-f]{4}$"}},
)
NODE_FEATURE_RULES: Final[Json] = {
    "type": "array",
    "minItems": 1,
    "items": closed(
        ("name", "labels", "matchFeatures"),
        name=TEXT,
        labels=MAP,
        matchFeatures={
            "type": "array",
            "minItems": 1,
            "items": closed(
                ("feature", "matchExpressions"),
                feature={"const": "pci.device"},
                matchExpressions=closed(
                    ("vendor", "device"),
                    **dict.fromkeys(("class", "vendor", "device", "subsystem_device"), PCI_ID),
                ),
            ),
        },
    ),
}

SCHEMAS: Final = {
    "PodMonitor": kind(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        closed(
            ("selector", "podMetricsEndpoints"),
            jobLabel=TEXT,
            selector=SELECTOR,
            podMetricsEndpoints=ENDPOINTS,
        ),
    ),
    "PrometheusRule": kind(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        closed(("groups",), groups={"type": "array", "items": GROUP, "minItems": 1}),
    ),
    "Certificate": kind("cert-manager.io/v1", "Certificate", CERTIFICATE),
    "NodeFeatureRule": kind(
        "nfd.k8s-sigs.io/v1alpha1",
        "NodeFeatureRule",
        closed(("rules",), rules=NODE_FEATURE_RULES),
        CLUSTER_METADATA,
    ),
    "SecurityContextConstraints": closed(
        ("apiVersion", "kind", "metadata", "users", "runAsUser", "seLinuxContext", "volumes"),
        apiVersion={"const": "security.openshift.io/v1"},
        kind={"const": "SecurityContextConstraints"},
        metadata=CLUSTER_METADATA,
        users=TEXTS,
        readOnlyRootFilesystem={"type": "boolean"},
        requiredDropCapabilities={"type": "array", "items": {"const": "ALL"}},
        seccompProfiles=TEXTS,
        volumes=TEXTS,
        **dict.fromkeys(("runAsUser", "seLinuxContext", "fsGroup", "supplementalGroups"), RUN_AS),
        **dict.fromkeys(ALLOWANCES, FLAG),
    ),
    "Issuer": kind("cert-manager.io/v1", "Issuer", ISSUER),
}
"""By kind."""
