// SPDX-License-Identifier: Apache-2.0
// denormals.h: FLUSH_DENORMALS; at the start of a kernel: numbers below the least normal one are zero in it.
// Defines  FLUSH_BY_HAND: 0 (default) | 1: by the register that x86 keeps for it, where the compiler is not told by
//          -cl-denorms-are-zero (gpu_driver/device/programs.py says why). The driver sets the register anew for every launch.
// Launch   in kernels of one work-item per group: each sets it
#ifndef FLUSH_BY_HAND
#define FLUSH_BY_HAND 0
#endif
#if FLUSH_BY_HAND
#define FLUSH_DENORMALS __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040) // results (bit 15) and operands (bit 6)
#else
#define FLUSH_DENORMALS
#endif
