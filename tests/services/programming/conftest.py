import pytest


@pytest.fixture(params=["opae", "dfl"])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)
