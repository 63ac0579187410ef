# SPDX-License-Identifier: Apache-2.0
"""The contract between the runtime and its drivers: HAL 1.3's content in Python's manners."""
