# SPDX-License-Identifier: Apache-2.0
"""The ways in which examples are run do what their names say."""

from __future__ import annotations

import pytest

from nn_runtime.codes import FeatureLevel
from nn_runtime.device import Device
from nn_runtime.hal.types import BufferRole, BufferToken, ErrorStatus
from nn_runtime.testing.conformance import Through, Verdict, make_runner, run_example
from nn_runtime.testing.corpus import Kind
from nn_runtime.testing.sample_drivers import SampleDevice
from tests.operations.cases import examples

EXECUTIONS = 2
CASE = next(example for example in examples() if example.name == "add_outer_float32")


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.DYNAMIC_OUTPUT_SHAPE])
def test_domains_use_memory_of_the_device_for_every_argument(kind: Kind) -> None:
    sample = SampleDevice("sample", feature_level=FeatureLevel.LEVEL_8)
    result = run_example(CASE, kind, make_runner(Device(sample), Through.DOMAINS))
    assert result.verdict == Verdict.PASSED, result.message
    inputs, outputs = len(CASE.inputs), len(CASE.outputs)
    wanted = [([BufferRole(0, i, 1.0)], []) for i in range(inputs)]
    wanted += [([], [BufferRole(0, i, 1.0)]) for i in range(outputs)]
    assert list(sample.record.allocations) == EXECUTIONS * wanted
    pools = [pool for request in sample.record.requests for pool in request.pools]
    assert len(pools) == EXECUTIONS * (inputs + outputs)
    assert all(isinstance(pool, BufferToken) for pool in pools)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (ErrorStatus.GENERAL_FAILURE, Verdict.UNSUPPORTED),
        (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, Verdict.FAILED),
    ],
)
def test_domains_are_not_supported_where_the_device_has_no_memory(status: ErrorStatus, verdict: Verdict) -> None:
    """Shared memory in its place would judge nothing."""
    sample = SampleDevice("sample")
    sample.script.allocate = status
    result = run_example(CASE, Kind.PLAIN, make_runner(Device(sample), Through.DOMAINS))
    assert result.verdict == verdict
    assert "told to fail at allocate" in result.message


def test_domains_fail_where_allocating_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_arguments: object) -> None:
        raise ValueError("driver bug")

    monkeypatch.setattr(SampleDevice, "allocate", crash)
    result = run_example(CASE, Kind.PLAIN, make_runner(Device(SampleDevice("sample")), Through.DOMAINS))
    assert result.verdict == Verdict.FAILED
    assert "driver bug" in result.message
