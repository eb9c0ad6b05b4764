// Convolutions of int8.c with drawn numbers, as one program for any processor: prints what came out, as bits.
//
// PLANT breaks the NEON code on purpose.

#include <stdio.h>
#include <stdlib.h>
#if defined(PLANT)
#include <arm_neon.h>
#define vdotq_s32(sums, a, b) vdotq_s32(vdupq_n_s32(0 * vgetq_lane_s32(sums, 0)), a, b) // forgets what it summed
#endif
#include "int8.c"

static uint64_t state = 1;

static float draw(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)((state >> 33) % 2001) / 1000.0f - 1.0f;
}

static float *drawn(int64_t n) {
  float *made = malloc(n * sizeof(float));
  for (int64_t i = 0; i < n; i++) made[i] = draw();
  return made;
}

static uint64_t convolved(int n_in, int n_out, int n_taps, int dilation, int n) {
  const int reach = (n_taps - 1) * dilation;
  const float *plain = drawn((int64_t)n_out * n_in * n_taps), *bias = drawn(n_out), *frames = drawn((n + reach) * n_in);
  uint16_t *x = malloc((int64_t)(n + reach) * n_in * 2);
  for (int64_t i = 0; i < (int64_t)(n + reach) * n_in; i++) x[i] = (uint16_t)(*(const uint32_t *)(frames + i) >> 16);
  void *weights = malloc(nightingale_pack_bytes(n_out, n_in, n_taps));
  nightingale_pack(plain, n_out, n_in, n_taps, weights, 1);
  const Convolution c = {weights, bias, n_in, n_out, n_taps, dilation};
  float *out = malloc((int64_t)n * n_out * sizeof(float));
  void *scratch = malloc(nightingale_convolve_bytes(&c, 1, n));
  const ConvolutionArgs args = {.x = x, .out_fp32 = out, .scratch = scratch, .n_rows = 1, .n = n};
  nightingale_convolve(&c, &args, 1);
  uint64_t made = 14695981039346656037u;
  for (int64_t i = 0; i < 4 * (int64_t)n * n_out; i++) made = (made ^ ((const uint8_t *)out)[i]) * 1099511628211u;
  return made;
}

int main(void) {
  const int shapes[][5] = {{32, 32, 1, 1, 1}, {256, 96, 1, 1, 50}, {64, 96, 7, 3, 40}, {96, 32, 11, 5, 33}};
  for (unsigned i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int *s = shapes[i];
    printf("%d to %d channels, %d taps: %016llx\n", s[0], s[1], s[2],
           (unsigned long long)convolved(s[0], s[1], s[2], s[3], s[4]));
  }
  return 0;
}
