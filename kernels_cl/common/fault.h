// SPDX-License-Identifier: Apache-2.0
// fault.h: how kernels tell that values which a run brought are wrong; they go on with values that are allowed.
// Tensors  fault int [1]: 0, or the number of the first launch that found something
// Units    number: of the operation, not 0

static inline void complain(volatile global int *fault, int number)
{
    atomic_cmpxchg(fault, 0, number);
}
