// The AVX-512 instructions that the kernels use, in plain C, for processors without them. Results are those of the
// instructions, to the bit, but for _mm512_rcp14_ps, which is exact here.
//
// Not meant to be fast. What a kernel starts to use is added here: without it the kernel does not compile for tests.

#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef int64_t __m512i __attribute__((vector_size(64), may_alias));
typedef int16_t __m512bh __attribute__((vector_size(64), may_alias));
typedef int64_t __m256i __attribute__((vector_size(32), may_alias));
typedef uint16_t __mmask16;
typedef uint64_t __mmask64;

typedef union {
  __m512i all;
  __m512 f32;
  __m256i half[2];
  int8_t i8[64];
  uint8_t u8[64];
  int16_t i16[32];
  uint16_t u16[32];
  int32_t i32[16];
  uint32_t u32[16];
  int64_t i64[8];
  struct { int64_t of[2]; } lane[4];
} Bits512;

typedef union {
  __m256i all;
  uint16_t u16[16];
} Bits256;

#define _MM_FROUND_TO_NEAREST_INT 0
#define _MM_FROUND_NO_EXC 8
#define _MM_HINT_T0 3
#define _mm_prefetch(address, hint) ((void)(address))

// ---- memory ----

#define LOAD(name, type)                               \
  static inline type name(const void *from) {          \
    type made;                                         \
    memcpy(&made, from, sizeof made);                  \
    return made;                                       \
  }
#define STORE(name, type) \
  static inline void name(void *to, type x) { memcpy(to, &x, sizeof x); }
LOAD(_mm512_load_ps, __m512)
LOAD(_mm512_loadu_ps, __m512)
LOAD(_mm512_load_si512, __m512i)
LOAD(_mm512_loadu_si512, __m512i)
LOAD(_mm256_loadu_si256, __m256i)
STORE(_mm512_store_ps, __m512)
STORE(_mm512_storeu_ps, __m512)
STORE(_mm512_store_si512, __m512i)
STORE(_mm512_storeu_si512, __m512i)
STORE(_mm256_storeu_si256, __m256i)

static inline __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float *from) {
  __m512 made = {0};
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) made[i] = from[i];
  return made;
}

static inline __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void *from) {
  Bits256 made = {{0}};
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) memcpy(made.u16 + i, (const char *)from + 2 * i, 2);
  return made.all;
}

static inline void _mm512_mask_storeu_ps(float *to, __mmask16 mask, __m512 x) {
  for (int i = 0; i < 16; i++)
    if (mask >> i & 1) to[i] = x[i];
}

// ---- one number for all ----

#define SET1(name, type, field, count)                        \
  static inline __m512i name(type x) {                        \
    Bits512 made;                                             \
    for (int i = 0; i < count; i++) made.field[i] = x;        \
    return made.all;                                          \
  }
SET1(_mm512_set1_epi16, int16_t, i16, 32)
SET1(_mm512_set1_epi32, int32_t, i32, 16)
static inline __m512i _mm512_set1_epi8(int8_t x) { return _mm512_set1_epi16((int16_t)(0x101 * (uint8_t)x)); }
static inline __m512i _mm512_setzero_si512(void) { return (__m512i){0}; }
static inline __m512 _mm512_setzero_ps(void) { return (__m512){0}; }
static inline __m512 _mm512_set1_ps(float x) { return x - (__m512){0}; }

// ---- numbers with a fraction ----

#define FLOATS(name, ...)                                      \
  static inline __m512 name(__m512 a, __m512 b) {              \
    __m512 made;                                               \
    for (int i = 0; i < 16; i++) made[i] = __VA_ARGS__;        \
    return made;                                               \
  }
FLOATS(_mm512_max_ps, a[i] > b[i] ? a[i] : b[i])
FLOATS(_mm512_min_ps, a[i] < b[i] ? a[i] : b[i])
// a * 2^floor(b); beyond 400 nothing changes any more
FLOATS(_mm512_scalef_ps, isnan(b[i]) ? b[i] : ldexpf(a[i], (int)floorf(fminf(fmaxf(b[i], -400), 400))))
static inline __m512 _mm512_add_ps(__m512 a, __m512 b) { return a + b; }
static inline __m512 _mm512_sub_ps(__m512 a, __m512 b) { return a - b; }
static inline __m512 _mm512_mul_ps(__m512 a, __m512 b) { return a * b; }
static inline __m512 _mm512_div_ps(__m512 a, __m512 b) { return a / b; }
static inline __m512 _mm512_rcp14_ps(__m512 a) { return 1.0f / a; }

static inline __m512 _mm512_sqrt_ps(__m512 a) {
  for (int i = 0; i < 16; i++) a[i] = sqrtf(a[i]);
  return a;
}

static inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  for (int i = 0; i < 16; i++) a[i] = fmaf(a[i], b[i], c[i]);
  return a;
}

static inline __m512 _mm512_fnmadd_ps(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(-a, b, c); }

static inline __m512 _mm512_roundscale_ps(__m512 a, int how) {
  if (how & ~_MM_FROUND_NO_EXC) abort(); // only to nearest, to whole numbers
  for (int i = 0; i < 16; i++) a[i] = rintf(a[i]);
  return a;
}

static inline __m512 _mm512_mask_max_ps(__m512 rest, __mmask16 mask, __m512 a, __m512 b) {
  __m512 made = _mm512_max_ps(a, b);
  for (int i = 0; i < 16; i++) made[i] = mask >> i & 1 ? made[i] : rest[i];
  return made;
}

static inline float _mm512_reduce_add_ps(__m512 a) { // halves are added to each other, again and again
  for (int n = 8; n; n /= 2)
    for (int i = 0; i < n; i++) a[i] += a[i + n];
  return a[0];
}

static inline float _mm512_reduce_max_ps(__m512 a) {
  for (int i = 1; i < 16; i++) a[0] = fmaxf(a[0], a[i]);
  return a[0];
}

// ---- whole numbers ----

#define WHOLE(name, field, count, ...)                                  \
  static inline __m512i name(__m512i left, __m512i right) {             \
    Bits512 a = {left}, b = {right}, made;                              \
    for (int i = 0; i < count; i++) made.field[i] = __VA_ARGS__;        \
    return made.all;                                                    \
  }
static inline int16_t saturated_i16(int32_t x) { return x < -0x8000 ? -0x8000 : x > 0x7fff ? 0x7fff : x; }
static inline uint16_t saturated_u16(int32_t x) { return x < 0 ? 0 : x > 0xffff ? 0xffff : x; }
WHOLE(_mm512_and_si512, i64, 8, a.i64[i] & b.i64[i])
WHOLE(_mm512_sub_epi8, u8, 64, a.u8[i] - b.u8[i])
WHOLE(_mm512_add_epi32, u32, 16, a.u32[i] + b.u32[i])
WHOLE(_mm512_maddubs_epi16, i16, 32, saturated_i16(a.u8[2 * i] * b.i8[2 * i] + a.u8[2 * i + 1] * b.i8[2 * i + 1]))
WHOLE(_mm512_madd_epi16, i32, 16, a.i16[2 * i] * b.i16[2 * i] + a.i16[2 * i + 1] * b.i16[2 * i + 1])
WHOLE(_mm512_add_epi16, u16, 32, a.u16[i] + b.u16[i])
WHOLE(_mm512_sub_epi16, u16, 32, a.u16[i] - b.u16[i])
WHOLE(_mm512_mullo_epi16, u16, 32, (uint32_t)a.u16[i] * b.u16[i])
WHOLE(_mm512_mulhrs_epi16, i16, 32, ((a.i16[i] * b.i16[i] >> 14) + 1) >> 1)
WHOLE(_mm512_avg_epu16, u16, 32, (a.u16[i] + b.u16[i] + 1) >> 1)
WHOLE(_mm512_min_epu16, u16, 32, a.u16[i] < b.u16[i] ? a.u16[i] : b.u16[i])
// these stay within each of four lanes
WHOLE(_mm512_packus_epi32, u16, 32, saturated_u16((i & 4 ? b : a).i32[i / 8 * 4 + i % 4]))
WHOLE(_mm512_unpacklo_epi32, i32, 16, (i & 1 ? b : a).i32[i / 4 * 4 + i % 4 / 2])
WHOLE(_mm512_unpackhi_epi32, i32, 16, (i & 1 ? b : a).i32[i / 4 * 4 + i % 4 / 2 + 2])
WHOLE(_mm512_unpacklo_epi64, i64, 8, (i & 1 ? b : a).i64[i / 2 * 2])
WHOLE(_mm512_unpackhi_epi64, i64, 8, (i & 1 ? b : a).i64[i / 2 * 2 + 1])

static inline __m512i _mm512_abs_epi8(__m512i x) {
  Bits512 made = {x};
  for (int i = 0; i < 64; i++) made.u8[i] = made.i8[i] < 0 ? -made.u8[i] : made.u8[i];
  return made.all;
}

static inline __mmask64 _mm512_movepi8_mask(__m512i x) {
  Bits512 from = {x};
  __mmask64 made = 0;
  for (int i = 0; i < 64; i++) made |= (__mmask64)(from.i8[i] < 0) << i;
  return made;
}

static inline __m512i _mm512_mask_sub_epi8(__m512i rest, __mmask64 mask, __m512i a, __m512i b) {
  Bits512 made = {_mm512_sub_epi8(a, b)}, old = {rest};
  for (int i = 0; i < 64; i++) made.u8[i] = mask >> i & 1 ? made.u8[i] : old.u8[i];
  return made.all;
}

static inline __m512i _mm512_shuffle_i32x4(__m512i left, __m512i right, int which) {
  Bits512 a = {left}, b = {right}, made;
  for (int i = 0; i < 4; i++) made.lane[i] = (i < 2 ? a : b).lane[which >> 2 * i & 3];
  return made.all;
}

static inline __m512i _mm512_permutex2var_epi16(__m512i left, __m512i places, __m512i right) {
  Bits512 a = {left}, b = {right}, at = {places}, made;
  for (int i = 0; i < 32; i++) made.u16[i] = (at.u16[i] & 32 ? b : a).u16[at.u16[i] & 31];
  return made.all;
}

static inline __m512i _mm512_slli_epi32(__m512i x, int n) {
  Bits512 made = {x};
  for (int i = 0; i < 16; i++) made.u32[i] <<= n;
  return made.all;
}

static inline __m256i _mm256_srli_epi16(__m256i x, int n) {
  Bits256 made = {x};
  for (int i = 0; i < 16; i++) made.u16[i] >>= n;
  return made.all;
}

// ---- from one kind to another ----

static inline __m512 _mm512_castsi512_ps(__m512i x) { return (__m512)x; }

static inline __m512i _mm512_castsi256_si512(__m256i x) {
  Bits512 made = {.half = {x}};
  return made.all;
}

static inline __m512i _mm512_inserti64x4(__m512i x, __m256i half, int which) {
  Bits512 made = {x};
  made.half[which] = half;
  return made.all;
}

static inline __m512i _mm512_cvtepu16_epi32(__m256i x) {
  Bits256 from = {x};
  Bits512 made;
  for (int i = 0; i < 16; i++) made.u32[i] = from.u16[i];
  return made.all;
}

static inline __m512 _mm512_cvtepi32_ps(__m512i x) {
  Bits512 from = {x};
  __m512 made;
  for (int i = 0; i < 16; i++) made[i] = (float)from.i32[i];
  return made;
}

static inline __m512i _mm512_cvtps_epi32(__m512 x) { // what does not fit, and NaN, is the smallest
  Bits512 made;
  for (int i = 0; i < 16; i++) made.i32[i] = fabsf(x[i]) < 0x1p31f ? (int32_t)rintf(x[i]) : INT32_MIN;
  return made.all;
}
