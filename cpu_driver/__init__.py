# SPDX-License-Identifier: Apache-2.0
"""A HAL driver over numpy: the reference meaning of every operation, and the fallback."""
