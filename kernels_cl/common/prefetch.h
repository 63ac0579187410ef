// SPDX-License-Identifier: Apache-2.0
// prefetch.h: PREFETCH(p) brings what is read soon into the caches, if the compiler knows how; p may point anywhere.
#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch) && (!defined(__SPIR__) || defined(__INTEL_LLVM_COMPILER))
#define PREFETCH(p) __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#endif
#endif
#ifndef PREFETCH
#define PREFETCH(p) (void)(p)
#endif
