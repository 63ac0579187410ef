# SPDX-License-Identifier: Apache-2.0
"""What one OpenCL device holds in this process: context and queues, memory, programs, and who may use them next."""
