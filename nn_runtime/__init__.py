# SPDX-License-Identifier: Apache-2.0
"""The Android Neural Networks stack on any machine with Python and OpenCL."""
