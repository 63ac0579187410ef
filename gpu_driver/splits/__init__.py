# SPDX-License-Identifier: Apache-2.0
"""How work is split among work-items and groups: sizes of launches, for kernels that go about it in like ways."""
