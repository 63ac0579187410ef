# SPDX-License-Identifier: Apache-2.0
"""Android's tests of drivers (VTS) for HAL 1.0 to 1.3, made of every driver under test behind each version."""
