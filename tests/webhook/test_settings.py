import pytest

from services.process.errors import InvalidSettings
from services.process.settings import load
from webhook.settings import WebhookSettings

NEEDED: dict[str, object] = {"tls_cert": "c", "tls_key": "k", "mappings": "m"}


def of(**flags: object) -> WebhookSettings:
    return load(WebhookSettings, NEEDED | flags)


def refusal(**flags: object) -> str:
    with pytest.raises(InvalidSettings) as caught:
        of(**flags)
    return str(caught.value)


def test_missing_settings_are_named() -> None:
    required = "--tls-cert is required; --tls-key is required"
    assert refusal(tls_cert=None, tls_key=None) == required


def test_mappings_come_from_one_place() -> None:
    assert refusal(api_server="unix:/k").startswith("--mappings and --api-server exclude")
    assert of(mappings=None, api_server="unix:/k").api_server == "unix:/k"
    assert of(mappings=None).mappings is None


@pytest.mark.parametrize(
    ("text", "wanted"), [("3Mi", 3145728), ("512Ki", 524288), ("4096", 4096), ("1 MiB", 1048576)]
)
def test_sizes_may_have_a_unit(text: object, wanted: int) -> None:
    assert of(max_body=text).max_body == wanted


@pytest.mark.parametrize("text", ["3Gi", "1", "17Mi", "3.5Mi", "9" * 400])
def test_sizes_out_of_bounds_or_of_other_units_are_refused(text: str) -> None:
    assert "--max-body" in refusal(max_body=text)


@pytest.mark.parametrize(
    ("domain", "wanted"),
    [
        ("", "at least one domain is needed"),
        ("A.example", "is not a DNS name"),
        ("a." * 130 + "a", "is not a DNS name"),
        ("x.k8s.io", "belong to Kubernetes itself"),
    ],
)
def test_domains_that_cannot_be_ours_are_refused(domain: str, wanted: str) -> None:
    assert wanted in refusal(domain=domain)


def test_a_domain_has_names_of_fpgas_or_of_accelerators() -> None:
    wanted = "a.example is in --domain and in --accelerator-domain"
    assert wanted in refusal(domain=("a.example",), accelerator_domain=("b.example", "a.example"))


def test_guarded_resources_are_names_or_all_names_that_begin_so() -> None:
    listed = "nvidia.com/*, rdma/hca,deviceclass.resource.kubernetes.io/gpu-*"
    assert of(guard=listed).guard == (
        *("nvidia.com/*", "rdma/hca", "deviceclass.resource.kubernetes.io/gpu-*"),
    )


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("nvidia.com", "is not a resource such as nvidia.com/gpu or nvidia.com/*"),
        ("nvidia.com/g*u", "is not a resource"),
        ("NVIDIA.com/gpu", "is not a DNS name"),
        ("kubernetes.io/batch-cpu", "belong to Kubernetes itself"),
        ("fpga.intel.com/*", "this domain has names that are always reviewed"),
    ],
)
def test_resources_that_cannot_be_guarded_are_refused(pattern: str, wanted: str) -> None:
    assert wanted in refusal(guard=("a.example/x", pattern))
