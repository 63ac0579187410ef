# SPDX-License-Identifier: Apache-2.0
"""`python -m nn_runtime` and `nnrt`: while modules are imported, Ctrl-C ends the process without a word."""

from __future__ import annotations

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as in the background
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from nn_runtime.cli import main  # with all that it imports, so after the signal is set

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
