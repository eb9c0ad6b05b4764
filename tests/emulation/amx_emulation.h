// AMX, AVX512_BF16 and AVX512_VNNI instructions in plain C, as Intel's Software Developer's Manual defines them.
//
// Whole numbers (TDPBUSD, VPDPBUSD) and conversions (VCVTNEPS2BF16) have one possible result, and this is it. Sums of
// bfloat16 products depend on their order: of TDPBF16PS the manual sums even and odd products apart, by fused
// multiply-adds, then adds both, then adds that to the destination; the Intrinsics Guide adds every product to the
// destination. This is the manual's order.

#pragma once
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Arithmetic on registers reads and writes no memory of the kernels, so AddressSanitizer and UBSan have nothing to find
// there, and with them it takes ten times as long. Loads and stores are checked.
#ifdef __SANITIZE_ADDRESS__
#define ON_REGISTERS __attribute__((no_sanitize("address", "undefined"), optimize("O3")))
#else
#define ON_REGISTERS
#endif

// ---- bfloat16 ----

// Denormals, as inputs and as results, are zeros of their sign, whatever MXCSR says.
ON_REGISTERS static inline float amx_flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

ON_REGISTERS static inline float amx_from_bf16(uint16_t bits) {
  uint32_t wide = (bits & 0x7f80) ? (uint32_t)bits << 16 : (uint32_t)(bits & 0x8000) << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

// VCVTNEPS2BF16: to nearest, ties to even; denormals to zero; NaNs become quiet and keep their upper bits
ON_REGISTERS static inline uint16_t amx_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7f800000) == 0) return bits >> 16 & 0x8000;
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

ON_REGISTERS static inline __m256i amx_cvtneps_pbh(__m512 x) {
  float from[16];
  uint16_t to[16];
  __m256i made;
  memcpy(from, &x, sizeof from);
  for (int i = 0; i < 16; i++) to[i] = amx_to_bf16(from[i]);
  memcpy(&made, to, sizeof made);
  return made;
}

// VDPBF16PS: the odd product of a pair is added first
ON_REGISTERS static inline __m512 amx_dpbf16_ps(__m512 sums, __m512bh x, __m512bh y) {
  float to[16];
  uint16_t a[32], b[32];
  memcpy(to, &sums, sizeof to), memcpy(a, &x, sizeof a), memcpy(b, &y, sizeof b);
  for (int i = 0; i < 16; i++) {
    to[i] = amx_flush(fmaf(amx_from_bf16(a[2 * i + 1]), amx_from_bf16(b[2 * i + 1]), amx_flush(to[i])));
    to[i] = amx_flush(fmaf(amx_from_bf16(a[2 * i]), amx_from_bf16(b[2 * i]), to[i]));
  }
  memcpy(&sums, to, sizeof sums);
  return sums;
}

// ---- whole numbers ----

ON_REGISTERS static inline uint32_t amx_dot4(const uint8_t *x, const int8_t *y) {
  int32_t sum = 0;
  for (int i = 0; i < 4; i++) sum += x[i] * y[i];
  return sum;
}

// VPDPBUSD: four unsigned by four signed bytes, added without saturation
ON_REGISTERS static inline __m512i amx_dpbusd_epi32(__m512i sums, __m512i x, __m512i y) {
  uint32_t to[16];
  uint8_t a[64];
  int8_t b[64];
  memcpy(to, &sums, sizeof to), memcpy(a, &x, sizeof a), memcpy(b, &y, sizeof b);
  for (int i = 0; i < 16; i++) to[i] += amx_dot4(a + 4 * i, b + 4 * i);
  memcpy(&sums, to, sizeof sums);
  return sums;
}

// ---- tiles ----

typedef struct { // as LDTILECFG reads it
  uint8_t palette, start_row, reserved[14];
  uint16_t n_bytes[16]; // of a row
  uint8_t n_rows[16];
} __attribute__((packed)) AmxConfig;

typedef union {
  uint8_t u8[16][64];
  int8_t i8[16][64];
  float f32[16][16];
  uint32_t u32[16][16];
} AmxTile;

static _Thread_local AmxConfig amx_config; // every thread has its own, and none before LDTILECFG
static _Thread_local AmxTile amx_tiles[8];

static inline void amx_loadconfig(const void *from) {
  memcpy(&amx_config, from, sizeof amx_config);
  memset(amx_tiles, 0, sizeof amx_tiles);
}

static inline void amx_release(void) {
  memset(&amx_config, 0, sizeof amx_config);
  memset(amx_tiles, 0, sizeof amx_tiles);
}

static inline AmxTile *amx_tile(int i) { // the processor raises #UD
  if (amx_config.palette == 1) return amx_tiles + i;
  fprintf(stderr, "an AMX instruction before LDTILECFG or behind TILERELEASE\n");
  abort();
}

static inline void amx_zero(int tile) { memset(amx_tile(tile), 0, sizeof(AmxTile)); }

static inline void amx_loadd(int tile, const void *base, int64_t stride) {
  amx_zero(tile);
  for (int row = 0; row < amx_config.n_rows[tile]; row++)
    memcpy(amx_tiles[tile].u8[row], (const char *)base + row * stride, amx_config.n_bytes[tile]);
}

static inline void amx_stored(int tile, void *base, int64_t stride) {
  const AmxTile *from = amx_tile(tile);
  for (int row = 0; row < amx_config.n_rows[tile]; row++)
    memcpy((char *)base + row * stride, from->u8[row], amx_config.n_bytes[tile]);
}

// 16 pairs of bfloat16 to their even and their odd numbers
ON_REGISTERS static inline void amx_split(const uint32_t *pairs, float *even, float *odd) {
  for (int i = 0; i < 16; i++) even[i] = amx_from_bf16((uint16_t)pairs[i]);
  for (int i = 0; i < 16; i++) odd[i] = amx_from_bf16((uint16_t)(pairs[i] >> 16));
}

// TDPBF16PS: rows of x by pairs of rows of y. What the configuration leaves out is zero, and stays zero.
ON_REGISTERS static inline void amx_dpbf16ps(int to, int x, int y) {
  AmxTile *sums = amx_tile(to);
  const int n_columns = amx_config.n_bytes[to] / 4;
  float left[2][16][16], right[2][16], made[2][16][16] = {0};
  for (int m = 0; m < 16; m++) amx_split(amx_tiles[x].u32[m], left[0][m], left[1][m]);
  for (int k = 0; k < amx_config.n_bytes[x] / 4; k++) {
    amx_split(amx_tiles[y].u32[k], right[0], right[1]);
    for (int odd = 0; odd < 2; odd++)
      for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++)
          made[odd][m][n] = amx_flush(fmaf(left[odd][m][k], right[odd][n], made[odd][m][n]));
  }
  for (int m = 0; m < amx_config.n_rows[to]; m++)
    for (int n = 0; n < 16; n++) {
      const float all = amx_flush(amx_flush(sums->f32[m][n]) + amx_flush(made[0][m][n] + made[1][m][n]));
      sums->f32[m][n] = n < n_columns ? all : 0;
    }
}

// TDPBUSD: unsigned bytes of x by signed ones of y, four at a time
ON_REGISTERS static inline void amx_dpbusd(int to, int x, int y) {
  AmxTile *sums = amx_tile(to);
  for (int m = 0; m < amx_config.n_rows[to]; m++)
    for (int k = 0; k < amx_config.n_bytes[x] / 4; k++)
      for (int n = 0; n < amx_config.n_bytes[to] / 4; n++)
        sums->u32[m][n] += amx_dot4(amx_tiles[x].u8[m] + 4 * k, amx_tiles[y].i8[k] + 4 * n);
}

// ---- under the names of the instructions ----

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#undef _mm512_cvtneps_pbh
#undef _mm512_dpbf16_ps
#undef _mm512_dpbusd_epi32
#define _tile_loadconfig amx_loadconfig
#define _tile_release amx_release
#define _tile_zero amx_zero
#define _tile_loadd amx_loadd
#define _tile_stored amx_stored
#define _tile_dpbf16ps amx_dpbf16ps
#define _tile_dpbusd amx_dpbusd
#define _mm512_cvtneps_pbh amx_cvtneps_pbh
#define _mm512_dpbf16_ps amx_dpbf16_ps
#define _mm512_dpbusd_epi32 amx_dpbusd_epi32
