"""Commands of the documents that aren't run where the others are, and what runs them instead."""

import re

DRY = "make --dry-run"
"""Only whether make would do it: it needs a package index, or takes an hour."""

BY_HAND = "by hand"
"""Nothing runs it: it takes twenty minutes and an environment of its own."""

CI = ".ci/run"
"""That script runs it, on each change."""

_DEMO = "tests/accelbind/test_demo.py::test_the_demo_sees_all_that_it_expects_and_leaves_nothing"
_ENGINE = "tests/compose/with_docker.py"
_SUITE = f"{_ENGINE}::test_the_suite_comes_up_healthy_tries_the_pods_and_goes_down"
_BUILT = f"{_ENGINE}::test_images_are_small"
_TWICE = "tests/e2e/test_e2e.py::test_the_suite_passes_twice_in_a_row_and_leaves_nothing"

ELSEWHERE = {
    r"make demo": _DEMO,
    r"make (test|lint)": CI,
    r"make setup": CI,
    r"make test PYTEST_ARGS=.*": DRY,
    r"make (bench|lock)": DRY,
    r"make soak .*": DRY,
    r"make test-compose": DRY,
    r"make e2e SIMULATOR=1": _TWICE,
    r"make e2e (KUBECONFIG|HELP)=.*": DRY,
    r"make hook": "tests/accelbind/test_hook_folder.py::folder",
    r"make format": "tests/docs/test_make.py::test_nothing_is_left_to_format",
    r"make proto": "tests/docs/test_make.py::test_the_stubs_are_what_make_proto_makes",
    r"make docs": DRY,
    r"docker compose up": _SUITE,
    r"docker compose run --rm try": _SUITE,
    r"docker compose --profile watch up": _SUITE,
    r"docker compose down --volumes": _SUITE,
    r"docker compose exec plugin-af accelbind devices .*": (
        "tests/docs/test_compose.py::test_what_is_run_in_a_service_has_its_folders"
    ),
    r"docker build .*": _BUILT,
    r"docker push .*": _BUILT,
    r"accelbind devices --watch": (
        "tests/accelbind/test_devices.py::test_changes_are_lines_where_nobody_watches_a_screen"
    ),
    r"accelbind certs renew --ca": (
        "tests/certs/test_commands.py::test_changing_the_ca_now_puts_both_into_the_bundle_first"
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
