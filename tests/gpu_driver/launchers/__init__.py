# SPDX-License-Identifier: Apache-2.0
"""Tests of what launchers share."""
