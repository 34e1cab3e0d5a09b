"""The samples are what the webhook takes, each as its mode has it."""

from accelbind.cli import main
from tests.manifests.rendering import MANIFESTS, rendered


def test_nothing_is_wrong_with_the_mappings() -> None:
    assert main(["check", "mappings", str(MANIFESTS / "samples" / "mappings")]) == 0


def test_mappings_come_before_the_pods_that_use_them() -> None:
    kinds = [item["kind"] for item in rendered("samples")]
    mapped = {"AcceleratorFunction", "FpgaRegion"}
    assert kinds[0] == "Namespace"
    assert set(kinds[1:4]) == mapped
    assert not mapped & set(kinds[4:])
