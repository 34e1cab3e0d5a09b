import pytest

from services.process.errors import InvalidSettings
from services.process.settings import load
from webhook.settings import WebhookSettings

NEEDED: dict[str, object] = {"tls_cert": "c", "tls_key": "k", "mappings": "m"}
BOTH_KINDS = {"domain": ("a.example",), "accelerator_domain": ("b.example", "a.example")}


def of(**flags: object) -> WebhookSettings:
    return load(WebhookSettings, NEEDED | flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {"tls_cert": None, "tls_key": None},
            "^--tls-cert is required; --tls-key is required$",
        ),
        ({"api_server": "unix:/k"}, "^--mappings and --api-server exclude"),
        *(({"max_body": size}, "--max-body") for size in ("3Gi", "1", "17Mi", "3.5Mi", "9" * 400)),
        ({"domain": ""}, "at least one domain is needed"),
        ({"domain": "A.example"}, "is not a DNS name"),
        ({"domain": "a." * 130 + "a"}, "is not a DNS name"),
        ({"domain": "x.k8s.io"}, "belong to Kubernetes itself"),
        (BOTH_KINDS, "a.example is in --domain and in --accelerator-domain"),
        ({"guard": "nvidia.com"}, "is not a resource such as nvidia.com/gpu or nvidia.com/*"),
        ({"guard": "nvidia.com/g*u"}, "is not a resource"),
        ({"guard": "NVIDIA.com/gpu"}, "is not a DNS name"),
        ({"guard": "a.example/x,kubernetes.io/batch-cpu"}, "belong to Kubernetes itself"),
        ({"guard": "fpga.intel.com/*"}, "this domain has names that are always reviewed"),
    ],
)
def test_unfit_settings_are_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        of(**flags)


def test_mappings_come_from_one_place() -> None:
    assert of(mappings=None, api_server="unix:/k").api_server == "unix:/k"
    assert of(mappings=None).mappings is None


@pytest.mark.parametrize(
    ("text", "wanted"), [("3Mi", 3145728), ("512Ki", 524288), ("4096", 4096), ("1 MiB", 1048576)]
)
def test_sizes_may_have_a_unit(text: object, wanted: int) -> None:
    assert of(max_body=text).max_body == wanted


def test_guarded_resources_are_names_or_all_names_that_begin_so() -> None:
    listed = "nvidia.com/*, rdma/hca,deviceclass.resource.kubernetes.io/gpu-*"
    assert of(guard=listed).guard == (
        *("nvidia.com/*", "rdma/hca", "deviceclass.resource.kubernetes.io/gpu-*"),
    )
