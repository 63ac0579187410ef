# SPDX-License-Identifier: Apache-2.0
"""Operations are found in the file that `families` names, and no other file is imported for them."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from cpu_driver import operations as cpu
from gpu_driver import operations as gpu
from nn_runtime import operations as definitions
from nn_runtime.codes import CONTROL_FLOW, OperationCode
from nn_runtime.families import WITH_CONTROL_FLOW, Families
from nn_runtime.tflite import operators
from nn_runtime.tflite.converter import supported_operators

CASES = [(family, code) for family, codes in WITH_CONTROL_FLOW.items() for code in codes]


def test_every_operation_has_one_family() -> None:
    codes = [code for _family, code in CASES]
    assert len(set(codes)) == len(codes)
    assert set(codes) == set(definitions.definitions())


@pytest.mark.parametrize(("family", "code"), CASES, ids=[code.name for _family, code in CASES])
def test_an_operation_is_registered_in_its_family(family: str, code: OperationCode) -> None:
    assert definitions.definition(code).code == code
    assert f"OperationCode.{code.name}" in inspect.getsource(sys.modules[f"{definitions.__name__}.{family}"])
    for package, registered in ((cpu, cpu.function_of(code)), (gpu, gpu.launcher_of(code))):
        if code in CONTROL_FLOW:
            assert registered is None
            continue
        assert registered is not None
        assert registered.__module__ == f"{package.__name__}.{family}"
    if code in gpu._refusals:
        assert "supports(" in inspect.getsource(sys.modules[f"{gpu.__name__}.{family}"])


def test_an_operator_is_registered_in_its_family() -> None:
    supported_operators()
    found: dict[str, set[int | str]] = {}
    for code, conversion in operators._conversions.items():
        found.setdefault(conversion.__module__.rpartition(".")[2], set()).add(code)
    assert found == {family: set(codes) for family, codes in operators._FAMILIES.items()}


def test_only_the_families_of_a_model_are_imported() -> None:
    program = (
        "import sys; from nn_runtime import operations; operations.definition(%d);"
        "print(sorted(name for name in sys.modules if name.startswith('nn_runtime.operations.')))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program % OperationCode.FLOOR], capture_output=True, text=True, check=True, timeout=120
    )
    assert "'nn_runtime.operations.unary'" in run.stdout
    assert "'nn_runtime.operations.lstm'" not in run.stdout


def test_a_code_without_a_family_is_left_alone() -> None:
    families = Families("nowhere", {"some": (1,)})
    families.load(2)
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        families.load(1)
