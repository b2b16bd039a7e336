"""Schemathesis makes requests from the OpenAPI document, right and wrong: none breaks it."""

from contextlib import suppress

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from calipers.serve import create_app

CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
    schemathesis.checks.status_code_conformance,
]


@pytest.fixture
def schema(folder):
    app = create_app([folder / "plain", folder / "homes"])
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def attack(schema, examples):
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode:

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case):
                # not ready yet is what /ready is there to say
                checks = CHECKS[1:] if case.path == "/ready" else CHECKS
                case.call_and_validate(checks=checks)

            with suppress(Unsatisfiable):  # nothing can be wrong where nothing is sent
                check()


@pytest.mark.long
def test_nothing_breaks(schema):
    attack(schema, examples=6)


@pytest.mark.slow
def test_nothing_breaks_for_long(schema):
    attack(schema, examples=400)
