// The fused operations of flow and vocoder, as Python calls them. Libraries implement them for kinds of processors: in
// bfloat16 by AMX (amx.c, convolve.c), in 8 bits (int8.c). Activations between them are bfloat16 or fp32 for all.

#pragma once
#include "abi.h"

typedef struct {
  const void *weights; // packed as the library likes them
  const float *bias;   // (n_out,)
  int32_t n_in, n_out; // multiples of 32
  int32_t n_taps, dilation;
} Convolution;

typedef struct {
  const float *weight, *bias; // (width,)
  int32_t width;              // a multiple of 16
  float eps;
} Norm;

typedef struct {
  const uint16_t *x;   // (n_rows, n + (n_taps - 1) * dilation, n_in), or else, for a single tap,
  const float *stream; // (n_rows, n, n_in), to be normed
  const Norm *norm;
  const float *residual; // (n_rows, n, n_out), added, or none
  float *out_fp32;       // where sums go, (n_rows, n, n_out): either here ...
  uint16_t *out_bf16;    // ... or here, in bfloat16
  void *scratch;         // as many bytes as `nightingale_convolve_bytes` says
  int32_t n_rows, n;
  int32_t gelu; // through gelu
} ConvolutionArgs;

// Keys and values of some positions, (rows, n, heads * d) each, positions so many numbers apart.
typedef struct {
  const uint16_t *keys, *values;
  int64_t stride;
  int32_t n;
} Segment;

int64_t nightingale_pack_bytes(int n_out, int n_in, int n_taps);
int64_t nightingale_convolve_bytes(const Convolution *c, int n_rows, int n);
int64_t nightingale_attend_bytes(int n_keys);
void nightingale_pack(const float *from, int n_out, int n_in, int n_taps, void *to, int n_threads);
void nightingale_convolve(const Convolution *c, const ConvolutionArgs *p, int n_threads);
