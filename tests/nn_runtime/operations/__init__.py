# SPDX-License-Identifier: Apache-2.0
"""Tests of signatures and shape rules."""
