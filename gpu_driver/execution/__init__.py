# SPDX-License-Identifier: Apache-2.0
"""Lowered segments made ready and run: programs and arguments once, then requests that enqueue and wait."""
