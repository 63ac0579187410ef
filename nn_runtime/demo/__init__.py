# SPDX-License-Identifier: Apache-2.0
"""Data of `nnrt demo`, written by examples/digits/train.py: two digit networks; held-back scans (UCI, CC BY 4.0)."""
