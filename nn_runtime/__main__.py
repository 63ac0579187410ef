# SPDX-License-Identifier: Apache-2.0
"""`python -m nn_runtime` is the command `nnrt`."""

from __future__ import annotations

import sys

from nn_runtime.cli import main

sys.exit(main())
