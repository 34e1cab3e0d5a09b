"""Commands of the documentation that other tests run, and commands that nothing runs."""

import re

BY_HAND = "by hand"
"""Nothing runs it: it needs a registry, a real cluster, or twenty minutes."""

CI = ".ci/run"
"""That script runs it for each change."""

_KEPT = "tests/docs/test_kept.py"
_ENGINE = "tests/compose/with_docker.py"
_SUITE = f"{_ENGINE}::test_the_suite_comes_up_healthy_tries_the_pods_and_goes_down"
_BUILT = f"{_ENGINE}::test_images_are_small"
_MAKE = "tests/docs/test_make.py"
_TARGETS = f"{_MAKE}::test_targets_start_what_they_are_for"
_RELEASE = "tests/tools/test_release.py"
_E2E = "tests/e2e/test_e2e.py"

ELSEWHERE = {
    r"accelbind demo --keep": f"{_KEPT}::test_programming_can_be_tried_without_hardware",
    r"make (test|lint|demo|test-kernel|test-compose|setup)": CI,
    r"make (test PYTEST_ARGS=.*|bench.*|e2e HELP=1|golden|docs|format|proto|soak .*)": _TARGETS,
    r"make kind": f"{_RELEASE}::test_make_kind_runs_the_commands_of_the_quickstart",
    r"make release-files .*": f"{_RELEASE}::test_a_release_has_installations_chart_and_notes",
    r"ls dist/release": f"{_RELEASE}::test_a_release_has_installations_chart_and_notes",
    r"make lock": BY_HAND,
    r"make e2e SIMULATOR=1": f"{_E2E}::test_the_suite_passes_and_leaves_nothing",
    r"make e2e KUBECONFIG=\S+": f"{_E2E}::test_the_deployed_suite_is_tested_too",
    r"make e2e KUBECONFIG=\S+ HOST_PROCESSES=1 .*": (
        f"{_E2E}::test_the_suite_passes_and_leaves_nothing"
    ),
    r"make hook": f"{_ENGINE}::test_the_installer_puts_a_hook_onto_the_host_that_runs",
    r"docker compose (up|run --rm try|--profile watch (up|down --volumes))": _SUITE,
    r"docker compose exec plugin-af accelbind devices .*": _SUITE,
    r"docker build .*": _BUILT,
    r"accelbind devices --watch": (
        "tests/accelbind/test_devices.py::test_the_table_is_printed_again_after_each_change"
    ),
    r"accelbind certs renew --ca": (
        "tests/certs/test_commands.py"
        "::test_renewing_now_replaces_the_certificate_and_by_request_the_ca"
    ),
    r"helm (upgrade|template) .*": (
        "tests/manifests/test_helm.py::test_commands_of_the_documents_name_flags_that_helm_has"
    ),
    # The chart's checks of these steps: tests/manifests/test_certificate_sources.py.
    r"configurations=.*|(bundle|upgrade|rollout)\(\) .*|bundle >.*|upgrade .*|until .*": BY_HAND,
    r"kubectl annotate \$configurations .*|kubectl apply -f .*/cert-manager/.*": BY_HAND,
    r"kubectl -n accelbind-system (wait|get secret) .*": BY_HAND,
    r"kind .*": BY_HAND,
    r"kubectl auth can-i .*": BY_HAND,  # the stand-in has no roles
    r"python3 -m venv \.venv-mutmut": BY_HAND,
    r"\.venv-mutmut/bin/.*": BY_HAND,
}
"""Pattern of a whole command → the test that runs it, or one of the words above."""


def who_runs(command: str) -> str | None:
    """Return what runs a command instead; None if it is run like the others."""
    for pattern, runner in ELSEWHERE.items():
        if re.fullmatch(pattern, command):
            return runner
    return None
