# SPDX-License-Identifier: Apache-2.0
"""Convolutions and FULLY_CONNECTED: geometry, packed weights, exact requantisation, the ways to compute them."""
