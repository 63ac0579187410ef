# SPDX-License-Identifier: Apache-2.0
"""A HAL driver over OpenCL through PyOpenCL: one HAL device per usable OpenCL device."""
