// What the files for processors with matrix tiles (AMX) share.

#pragma once
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
