// What the files for processors with AMX share.

#pragma once
#include "fused.h"
#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define TILE 16 // rows of a tile
#define LOG2_E 1.44269504f

static inline __m512 load_bf16(const uint16_t *from) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void store_bf16(uint16_t *to, __m512 x) {
  _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(x));
}

// All tiles of this thread are 16 rows of 64 bytes.
static inline void configure_tiles(void) {
  struct {
    uint8_t palette, start, unused[14];
    uint16_t n_bytes[16];
    uint8_t n_rows[16];
  } __attribute__((packed)) config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.n_bytes[i] = 64, config.n_rows[i] = TILE;
  _tile_loadconfig(&config);
}

static inline __m512 exp2_roughly(__m512 x) { // relative error 1e-4: what becomes of it is bfloat16
  __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 rest = _mm512_sub_ps(x, whole), sum = _mm512_set1_ps(0.05550411f);
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(0.24022651f));
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(0.69314718f));
  sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(sum, whole);
}

static inline __m512 inverse_roughly(__m512 x) { return _mm512_rcp14_ps(x); } // relative error 6e-5

static inline __m512 gelu(__m512 x) { // x times the normal distribution: a polynomial from -4.25 to 4.25; error 6e-5
  __m512 t = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(4.25f)), _mm512_set1_ps(-4.25f));
  __m512 s = _mm512_mul_ps(t, t), sum = _mm512_set1_ps(6.18323795e-11f);
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(-5.85995341e-09f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(2.44775606e-07f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(-6.00466365e-06f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(9.78003663e-05f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(-1.13874464e-03f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(9.93426330e-03f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(-6.65782019e-02f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(3.99071813e-01f));
  return _mm512_mul_ps(x, _mm512_fmadd_ps(sum, t, _mm512_set1_ps(0.5f)));
}

// (x - mean) / deviation of a row that stays where it is
static inline void measure_row(const float *x, int width, float eps, __m512 *mean, __m512 *scale) {
  __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
  for (int i = 0; i < width; i += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
  *mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width);
  for (int i = 0; i < width; i += 16) {
    __m512 off = _mm512_sub_ps(_mm512_loadu_ps(x + i), *mean);
    squares = _mm512_fmadd_ps(off, off, squares);
  }
  float variance = _mm512_reduce_add_ps(squares) / width;
  *scale = _mm512_div_ps(_mm512_set1_ps(1), _mm512_sqrt_ps(_mm512_set1_ps(variance + eps)));
}

static inline __m512 normed(const float *x, int i, const Norm *norm, __m512 mean, __m512 scale) {
  __m512 off = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), mean), scale);
  return _mm512_fmadd_ps(off, _mm512_loadu_ps(norm->weight + i), _mm512_loadu_ps(norm->bias + i));
}
