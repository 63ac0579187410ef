# SPDX-License-Identifier: Apache-2.0
"""What the runtime accepts of every operation, and that it refuses everything beside it."""
