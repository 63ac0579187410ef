# SPDX-License-Identifier: Apache-2.0
"""A sequence of executions of one compilation in quick succession (SURFACE section i)."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from nn_runtime.errors import BadState, UnexpectedNull

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nn_runtime.compilation import Compilation


class Burst:
    """Serves one compilation, one execution at a time."""

    def __init__(self, compilation: Compilation) -> None:
        """Raises UnexpectedNull, or BadState unless the compilation is finished."""
        if compilation is None:
            raise UnexpectedNull("burst: the compilation is None")
        if compilation.plan is None:
            raise BadState("burst: the compilation is not finished, or its finish failed")
        self.compilation = compilation
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the burst during an execution; raises BadState if another thread holds it."""
        if not self._busy.acquire(blocking=False):
            raise BadState("burst: another execution is using it")
        try:
            yield
        finally:
            self._busy.release()

    def close(self) -> None:
        """End the burst."""

    def __enter__(self) -> Burst:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
