"""Commands of the documents that aren't run where the others are, and what runs them instead."""

import re

BY_HAND = "by hand"
"""Nothing runs it: it takes a registry, or twenty minutes and an environment of its own."""

CI = ".ci/run"
"""That script runs it, on each change."""

_DEMO = "tests/accelbind/test_demo.py::test_the_demo_sees_all_that_it_expects_and_leaves_nothing"
_ENGINE = "tests/compose/with_docker.py"
_SUITE = f"{_ENGINE}::test_the_suite_comes_up_healthy_tries_the_pods_and_goes_down"
_BUILT = f"{_ENGINE}::test_images_are_small"
_MAKE = "tests/docs/test_make.py"
_E2E = "tests/e2e/test_e2e.py"

ELSEWHERE = {
    r"make demo": _DEMO,
    r"make (test|lint|test-compose)": CI,
    r"make setup": CI,
    r"make test PYTEST_ARGS=.*": f"{_MAKE}::test_make_test_runs_some_tests",
    r"make bench": f"{_MAKE}::test_make_bench_prints_the_tables_that_are_chosen",
    r"make lock": f"{_MAKE}::test_make_lock_resolves_for_both_files_with_hashes_and_names_no_index",
    r"make soak .*": f"{_MAKE}::test_make_soak_takes_its_length_and_its_seed",
    r"make e2e SIMULATOR=1": f"{_MAKE}::test_make_e2e_brings_a_cluster_of_stand_ins",
    r"make e2e KUBECONFIG=\S+": f"{_E2E}::test_what_is_deployed_is_tried_as_well",
    r"make e2e KUBECONFIG=\S+ HOST_PROCESSES=1 .*": (
        f"{_E2E}::test_the_suite_passes_and_leaves_nothing"
    ),
    r"make e2e HELP=1": f"{_MAKE}::test_make_e2e_tells_its_settings",
    r"make hook": "tests/accelbind/test_hook_folder.py::folder",
    r"make format": f"{_MAKE}::test_nothing_is_left_to_format",
    r"make proto": f"{_MAKE}::test_the_stubs_are_what_make_proto_makes",
    r"make golden": f"{_MAKE}::test_make_golden_writes_what_is_committed",
    r"make docs": f"{_MAKE}::test_what_make_docs_makes_is_what_is_committed",
    r"docker compose up": _SUITE,
    r"docker compose run --rm try": _SUITE,
    r"docker compose --profile watch up": _SUITE,
    r"docker compose --profile watch down --volumes": _SUITE,
    r"docker compose exec plugin-af accelbind devices .*": _SUITE,
    r"docker build .*": _BUILT,
    r"accelbind devices --watch": (
        "tests/accelbind/test_devices.py::test_the_table_is_printed_again_after_each_change"
    ),
    r"accelbind certs renew --ca": (
        "tests/certs/test_commands.py::test_changing_the_ca_now_puts_both_into_the_bundle_first"
    ),
    r"helm (upgrade|template) .*": (
        "tests/manifests/test_helm.py::test_commands_of_the_documents_name_flags_that_helm_has"
    ),
    r"python3 -m venv \.venv-mutmut": BY_HAND,
    r"\.venv-mutmut/bin/.*": BY_HAND,
}
"""Pattern of a command, whole → the test that runs it, or one of the words above."""


def who_runs(command: str) -> str | None:
    """What runs a command instead; None where it is to be run like the others."""
    for pattern, runner in ELSEWHERE.items():
        if re.fullmatch(pattern, command):
            return runner
    return None
