"""Fixtures of the HTTP tests. The client tests start their servers themselves (client_server.py)."""

import pytest

import http_rig


def pytest_configure(config):
    config.addinivalue_line("markers", "heavy: about a model's arithmetic or a process's size; left out under sanitizers")


@pytest.fixture(scope="module")
def fake():
    """Front end and scheduler over the fake engine, a millisecond a step."""
    with http_rig.start_fake() as server:
        yield server
        server.wait_idle()


@pytest.fixture(scope="module")
def real():
    """The program with SmolLM2-135M. model.alias is m, the name that recorded requests use."""
    with http_rig.start_real("--model.alias", "m") as server:
        yield server
        server.wait_idle()
