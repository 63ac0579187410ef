# SPDX-License-Identifier: Apache-2.0
"""What the insides show: logging, traces, graph dumps."""
