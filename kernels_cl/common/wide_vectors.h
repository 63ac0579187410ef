// SPDX-License-Identifier: Apache-2.0
// wide_vectors.h: no warnings of functions with vectors wider than the processor's.
// Clang warns that they are passed on in another way where registers are wider; here all calls are in one program. PoCL 3.0 writes to
// standard error how many warnings there were.
#ifdef __clang__
#ifdef __has_warning
#if __has_warning("-Wpsabi")
#pragma clang diagnostic ignored "-Wpsabi"
#endif
#endif
#endif
