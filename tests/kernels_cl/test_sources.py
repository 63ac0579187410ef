# SPDX-License-Identifier: Apache-2.0
"""Reading kernel sources: includes resolved once, lines numbered for the compiler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import kernels_cl

if TYPE_CHECKING:
    from collections.abc import Callable


def _reader(files: dict[str, str]) -> Callable[[str], str]:
    def read(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    return read


def test_includes_are_put_in_place_once_with_line_numbers() -> None:
    files = {
        "a.cl": '#include "common/x.h"\n# include "common/y.h"\nkernel void a() {}\n',
        "common/x.h": '#include "common/y.h"\nint x;\n',
        "common/y.h": "int y;\n",
    }
    assert kernels_cl.resolve("a.cl", _reader(files)).splitlines() == [
        '#line 1 "a.cl"',
        '#line 1 "common/x.h"',
        '#line 1 "common/y.h"',
        "int y;",
        '#line 2 "common/x.h"',
        "int x;",
        '#line 2 "a.cl"',
        '#line 3 "a.cl"',
        "kernel void a() {}",
    ]


def test_circle_of_includes_ends() -> None:
    files = {"a.cl": '#include "b.h"\n', "b.h": '#include "a.cl"\n#include "b.h"\nint b;\n'}
    assert kernels_cl.resolve("a.cl", _reader(files)).count("int b;") == 1


def test_missing_include_names_who_wants_it() -> None:
    with pytest.raises(FileNotFoundError, match=r"'common/none\.h' \(included by a\.cl, line 2\)"):
        kernels_cl.resolve("a.cl", _reader({"a.cl": '\n#include "common/none.h"\n'}))


@pytest.mark.parametrize("name", ["../secret.h", "/etc/passwd", "a.cl/../../b.cl", "a.txt", 'a".cl', ""])
def test_names_outside_the_package_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a kernel source"):
        kernels_cl.resolve(name, _reader({}))


def test_unknown_source() -> None:
    with pytest.raises(FileNotFoundError, match=r"no kernel source 'none\.cl'"):
        kernels_cl.source("none.cl")


def test_every_packaged_source_resolves() -> None:
    assert kernels_cl.names() == tuple(sorted(kernels_cl.names()))
    for name in kernels_cl.names():
        text = kernels_cl.source(name)
        assert text.startswith(f'#line 1 "{name}"\n')
        assert "#include" not in text


def test_only_what_cpus_build_has_macros_of_any_number_of_arguments() -> None:
    """NVIDIA's compiler refuses them: `variadic macros not supported in OpenCL`."""
    assert [name for name in kernels_cl.names() if "__VA_ARGS__" in kernels_cl.source(name)] == ["chain.cl"]


@pytest.mark.parametrize("name", [one for one in kernels_cl.names() if "VECTOR_KERNEL void" in kernels_cl.source(one)])
def test_lone_work_items_meet_at_no_barrier(name: str) -> None:
    """PoCL takes seconds to make loops of what is between barriers, llvmpipe's compiler loses its way in them."""
    of_groups = re.sub(r"#define GROUP_BARRIER.*", "", kernels_cl.source(name))
    assert not re.search(r"\bbarrier *\(", of_groups)
