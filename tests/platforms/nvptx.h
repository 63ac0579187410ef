// SPDX-License-Identifier: Apache-2.0
// nvptx.h: the built-in functions that the kernels tested here call, for clang's target nvptx64, which has no library of them.
// The declarations are those of clang's own header (-finclude-default-header); only register counts come of what they compute.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define BUILT_IN __attribute__((overloadable, always_inline))
#define VECTORS_OF(type, n, space) \
    BUILT_IN type##n vload##n(size_t i, const space type *p) { return *(const space type##n *)(p + i * n); } \
    BUILT_IN void vstore##n(type##n v, size_t i, space type *p) { *(space type##n *)(p + i * n) = v; }
#define ROUNDED(n) \
    BUILT_IN void vstorea_half##n##_rte(float##n v, size_t i, global half *p) \
    { \
        *(global half##n *)(p + i * n) = __builtin_convertvector(v, half##n); \
    }
#define BYTES_OF(type, n) \
    BUILT_IN type##n convert_##type##n(int##n v) { return __builtin_convertvector(v, type##n); }

BUILT_IN size_t get_local_id(uint dimension) { return __nvvm_read_ptx_sreg_tid_x(); }
BUILT_IN size_t get_group_id(uint dimension)
{
    return dimension == 0 ? __nvvm_read_ptx_sreg_ctaid_x()
                          : dimension == 1 ? __nvvm_read_ptx_sreg_ctaid_y() : __nvvm_read_ptx_sreg_ctaid_z();
}
BUILT_IN size_t get_global_id(uint dimension)
{
    return get_group_id(dimension) * __nvvm_read_ptx_sreg_ntid_x() + get_local_id(dimension);
}
BUILT_IN size_t get_num_groups(uint dimension) { return __nvvm_read_ptx_sreg_nctaid_x(); }
BUILT_IN uint atomic_inc(volatile global uint *p)
{
    uint before;
    __asm__ volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(p) : "memory");
    return before;
}
BUILT_IN void barrier(cl_mem_fence_flags flags) { __syncthreads(); }
BUILT_IN int min(int a, int b) { return a < b ? a : b; }
BUILT_IN int max(int a, int b) { return a > b ? a : b; }
BUILT_IN int clamp(int x, int low, int high) { return min(max(x, low), high); }
BUILT_IN float fmin(float a, float b) { return __builtin_fminf(a, b); }
BUILT_IN float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
BUILT_IN int isnan(float x) { return __builtin_isnan(x); }
BUILT_IN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
BUILT_IN float4 fma(float4 a, float4 b, float4 c)
{
    return (float4)(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z), fma(a.w, b.w, c.w));
}
BUILT_IN float16 fma(float16 a, float16 b, float16 c)
{
    float16 v;
    for (int k = 0; k < 16; ++k)
        v[k] = fma(a[k], b[k], c[k]);
    return v;
}
BUILT_IN float16 copysign(float16 a, float16 b)
{
    float16 v;
    for (int k = 0; k < 16; ++k)
        v[k] = __builtin_copysignf(a[k], b[k]);
    return v;
}
BUILT_IN int16 min(int16 a, int16 b) { return a < b ? a : b; }
BUILT_IN int16 max(int16 a, int16 b) { return a > b ? a : b; }

VECTORS_OF(uint, 2, private)
VECTORS_OF(uint, 4, private)
VECTORS_OF(float, 2, private)
VECTORS_OF(float, 4, private)
VECTORS_OF(float, 8, private)
VECTORS_OF(int, 2, private)
VECTORS_OF(int, 4, private)
VECTORS_OF(int, 8, private)
VECTORS_OF(ushort, 4, private)
VECTORS_OF(ushort, 8, private)

VECTORS_OF(int, 4, global)
VECTORS_OF(float, 4, global)
VECTORS_OF(float, 16, global)
VECTORS_OF(ushort, 16, global)
VECTORS_OF(uchar, 16, global)
VECTORS_OF(char, 16, global)
VECTORS_OF(uchar, 4, global)
VECTORS_OF(char, 4, global)

BUILT_IN float vload_half(size_t i, const global half *p) { return p[i]; }
BUILT_IN float4 vload_half4(size_t i, const global half *p) { return (float4)(p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]); }
#define WIDENED(n) \
    BUILT_IN float##n vloada_half##n(size_t i, const global half *p) \
    { \
        return __builtin_convertvector(*(const global half##n *)(p + i * n), float##n); \
    }
WIDENED(4)
WIDENED(8)
#define HALF16_OF(space) \
    BUILT_IN float16 vload_half16(size_t i, const space half *p) \
    { \
        float16 v; \
        for (int k = 0; k < 16; ++k) \
            v[k] = p[16 * i + k]; \
        return v; \
    } \
    BUILT_IN void vstore_half16_rte(float16 v, size_t i, space half *p) \
    { \
        for (int k = 0; k < 16; ++k) \
            p[16 * i + k] = v[k]; \
    }
HALF16_OF(global)
HALF16_OF(private)
BUILT_IN int4 convert_int4(uchar4 v) { return __builtin_convertvector(v, int4); }
BUILT_IN int4 convert_int4(char4 v) { return __builtin_convertvector(v, int4); }
BUILT_IN int4 convert_int4(float4 v) { return __builtin_convertvector(v, int4); }
BUILT_IN float4 convert_float4(int4 v) { return __builtin_convertvector(v, float4); }
BUILT_IN float vload_half(size_t i, const private half *p) { return p[i]; }
BUILT_IN float4 vload_half4(size_t i, const private half *p) { return __builtin_convertvector(*(const private half4 *)(p + 4 * i), float4); }
BUILT_IN void vstore_half_rte(float v, size_t i, global half *p) { p[i] = v; }
BUILT_IN void vstore_half_rte(float v, size_t i, private half *p) { p[i] = v; }
ROUNDED(4)
ROUNDED(8)
BYTES_OF(uchar, 4)
BYTES_OF(uchar, 8)
BYTES_OF(char, 4)
BYTES_OF(char, 8)
