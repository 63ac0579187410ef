// SPDX-License-Identifier: Apache-2.0
// raw_vectors.h: RAW16_AT(p), RAW8_AT(p), RAW4_AT(p), RAW2_AT(p): so many elements at an address of theirs.
// Defines  RAW: uchar | ushort | uint: an unsigned type of the element's size (required)

#define RAWS_OF_(a, size) a##size
#define RAWS_OF(a, size) RAWS_OF_(a, size)
typedef RAWS_OF(RAW, 16) RAW16;

// PoCL 3.0 makes eight loads of vload16 on uchar; a packed structure stays one unaligned load or store.
typedef struct __attribute__((packed)) {
    RAW16 value;
} UnalignedRaw16;
typedef struct __attribute__((packed)) {
    RAWS_OF(RAW, 8) value;
} UnalignedRaw8;
typedef struct __attribute__((packed)) {
    RAWS_OF(RAW, 4) value;
} UnalignedRaw4;
typedef struct __attribute__((packed)) {
    RAWS_OF(RAW, 2) value;
} UnalignedRaw2;

#define RAW16_AT(p) (((global UnalignedRaw16 *)(p))->value)
#define RAW8_AT(p) (((global UnalignedRaw8 *)(p))->value)
#define RAW4_AT(p) (((global UnalignedRaw4 *)(p))->value)
#define RAW2_AT(p) (((global UnalignedRaw2 *)(p))->value)
