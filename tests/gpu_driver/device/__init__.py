# SPDX-License-Identifier: Apache-2.0
"""Tests of gpu_driver.device."""
