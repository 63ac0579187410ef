# SPDX-License-Identifier: Apache-2.0
"""Which OpenCL devices this machine has, whether they work, and what to do where none does."""
