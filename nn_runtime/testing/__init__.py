# SPDX-License-Identifier: Apache-2.0
"""Tools for driver writers and for our own tests."""
