// Single instructions, each behind a function: compiled with the emulation, and, where there is AMX, without.

#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_PERMISSION 0x1023 // arch_prctl(2)
#define TILE_DATA 18

static void configure(void) {
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t n_bytes[16];
    uint8_t n_rows[16];
  } __attribute__((packed)) config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.n_bytes[i] = 64, config.n_rows[i] = 16;
  syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
  _tile_loadconfig(&config);
}

// sums (16, 16) += x (16, 32) by y (16, 16, 2): a row of y has pairs of rows of a matrix (32, 16)
void tdpbf16ps(const uint16_t *x, const uint16_t *y, float *sums) {
  configure();
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, x, 64);
  _tile_loadd(2, y, 64);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, sums, 64);
  _tile_release();
}

// sums (16, 16) += x (16, 64) by y (16, 16, 4)
void tdpbusd(const uint8_t *x, const int8_t *y, int32_t *sums) {
  configure();
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, x, 64);
  _tile_loadd(2, y, 64);
  _tile_dpbusd(0, 1, 2);
  _tile_stored(0, sums, 64);
  _tile_release();
}

// sums (16,) += x (16, 2) by y (16, 2)
void vdpbf16ps(const uint16_t *x, const uint16_t *y, float *sums) {
  __m512bh a, b;
  memcpy(&a, x, sizeof a), memcpy(&b, y, sizeof b);
  _mm512_storeu_ps(sums, _mm512_dpbf16_ps(_mm512_loadu_ps(sums), a, b));
}

// sums (16,) += x (16, 4) by y (16, 4)
void vpdpbusd(const uint8_t *x, const int8_t *y, int32_t *sums) {
  const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(y);
  _mm512_storeu_si512(sums, _mm512_dpbusd_epi32(_mm512_loadu_si512(sums), a, b));
}

// 16 numbers to bfloat16
void vcvtneps2bf16(const float *x, uint16_t *to) {
  _mm256_storeu_si256((void *)to, (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x)));
}
