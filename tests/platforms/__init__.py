# SPDX-License-Identifier: Apache-2.0
"""Tests of kernels on platforms whose checks go further than ours: Oclgrind, and counts of what is compiled."""
