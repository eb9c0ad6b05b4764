// Convolutions over time in bfloat16 by AMX, and the wave between those of a vocoder.
//
// Time comes before channels. A tap is a product of frames, shifted by so many rows, with its own matrix; tiles are
// loaded from where the frames lie, so nothing is copied. Sums are fp32, in one order for every frame.

#include "amx.h"

static inline uint16_t to_bf16(float x) { // to nearest, ties to even; weights are numbers
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

int64_t nightingale_pack_bytes(int n_out, int n_in, int n_taps) {
  return (int64_t)((n_out + 31) / 32 * 32) * ((n_in + 31) / 32 * 32) * n_taps * 2;
}

int64_t nightingale_convolve_bytes(const Convolution *c, int n_rows, int n) {
  (void)c, (void)n_rows, (void)n;
  return 0; // tiles are loaded from where the frames lie
}

// Weights as a convolution has them, (n_out, n_in, n_taps), to [n_out / 16][n_taps][n_in / 32] tiles of [16 pairs of
// inputs][16 outputs]; outputs and inputs that are no whole tiles are joined by zeros.
void nightingale_pack(const float *from, int n_out, int n_in, int n_taps, void *space, int n_threads) {
  uint16_t *to = space;
  const int n_parts = (n_in + 31) / 32, n_columns = (n_out + 31) / 32 * 2;
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int column = 0; column < n_columns; column++)
    for (int tap = 0; tap < n_taps; tap++)
      for (int part = 0; part < n_parts; part++) {
        uint16_t *tile = to + (((int64_t)column * n_taps + tap) * n_parts + part) * 512;
        for (int o = 0; o < TILE; o++)
          for (int i = 0; i < 32; i++) {
            const int64_t out = column * TILE + o, in = part * 32 + i;
            const int is_there = out < n_out && in < n_in;
            tile[i / 2 * 32 + 2 * o + i % 2] = is_there ? to_bf16(from[(out * n_in + in) * n_taps + tap]) : 0;
          }
      }
}

#define FRAMES 64 // that a thread takes at a time

// Sums of 32 frames and 32 outputs; x points to the first tap of the first frame.
static inline void sum_block(const Convolution *c, const uint16_t *x, int out, float *sums) {
  const int n_parts = c->n_in / 32;
  const int64_t stride = (int64_t)c->n_in * 2, column = (int64_t)c->n_taps * n_parts * 512;
  const uint16_t *left = (const uint16_t *)c->weights + out / TILE * column, *right = left + column;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int tap = 0; tap < c->n_taps; tap++) {
    const uint16_t *from = x + (int64_t)tap * c->dilation * c->n_in;
    for (int part = 0; part < n_parts; part++, left += 512, right += 512) {
      _tile_loadd(4, from + part * 32, stride);
      _tile_loadd(5, from + part * 32 + (int64_t)TILE * c->n_in, stride);
      _tile_loadd(6, left, 64);
      _tile_loadd(7, right, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 128);
  _tile_stored(1, sums + TILE, 128);
  _tile_stored(2, sums + TILE * 32, 128);
  _tile_stored(3, sums + TILE * 32 + TILE, 128);
}

static void finish_block(const Convolution *c, const ConvolutionArgs *p, const float *sums, int64_t first, int n_here,
                         int out) {
  for (int i = 0; i < n_here; i++)
    for (int j = 0; j < 32; j += 16) {
      const int64_t at = (first + i) * c->n_out + out + j;
      __m512 y = _mm512_add_ps(_mm512_load_ps(sums + i * 32 + j), _mm512_loadu_ps(c->bias + out + j));
      if (p->residual) y = _mm512_add_ps(y, _mm512_loadu_ps(p->residual + at));
      if (p->gelu) y = gelu(y);
      if (p->out_fp32) _mm512_storeu_ps(p->out_fp32 + at, y);
      else store_bf16(p->out_bf16 + at, y);
    }
}

// n rows of the stream from row `first` on, normed
static void norm_rows(const Convolution *c, const ConvolutionArgs *p, int64_t first, int n, uint16_t *to) {
  for (int i = 0; i < n; i++) {
    const float *row = p->stream + (first + i) * c->n_in;
    __m512 mean, scale;
    measure_row(row, c->n_in, p->norm->eps, &mean, &scale);
    for (int j = 0; j < c->n_in; j += 16)
      store_bf16(to + (int64_t)i * c->n_in + j, normed(row, j, p->norm, mean, scale));
  }
}

// Threads take frames; where there are fewer blocks of them than threads, also parts of the outputs.
void nightingale_convolve(const Convolution *c, const ConvolutionArgs *p, int n_threads) {
  const int reach = (c->n_taps - 1) * c->dilation, n_blocks = (p->n + FRAMES - 1) / FRAMES;
  const int n_parts = p->n_rows * n_blocks < n_threads ? n_threads : 1;
  const int part = (c->n_out / 32 + n_parts - 1) / n_parts * 32;
  const int64_t n_seen = p->n + reach;
#pragma omp parallel num_threads(n_threads)
  {
    configure_tiles();
    float sums[32 * 32] __attribute__((aligned(64)));
    uint16_t last[(32 + reach) * c->n_in]; // the last frames of a row: tiles read behind them
    uint16_t fresh[p->norm ? FRAMES * c->n_in : 1];
#pragma omp for schedule(dynamic, 1)
    for (int unit = 0; unit < p->n_rows * n_blocks * n_parts; unit++) {
      const int row = unit / n_parts / n_blocks, begin = unit / n_parts % n_blocks * FRAMES;
      const int first = unit % n_parts * part, end = first + part < c->n_out ? first + part : c->n_out;
      const uint16_t *x = p->norm ? fresh : p->x + (row * n_seen + begin) * c->n_in;
      if (p->norm) norm_rows(c, p, row * n_seen + begin, p->n - begin < FRAMES ? p->n - begin : FRAMES, fresh);
      for (int out = first; out < end; out += 32)
        for (int t = begin; t < begin + FRAMES && t < p->n; t += 32) {
          const int n_here = p->n - t < 32 ? p->n - t : 32;
          const uint16_t *from = x + (int64_t)(t - begin) * c->n_in;
          if (n_here < 32) {
            if (out == first) memcpy(last, from, (size_t)(n_here + reach) * c->n_in * sizeof *last);
            from = last;
          }
          sum_block(c, from, out, sums);
          finish_block(c, p, sums, (int64_t)row * p->n + t, n_here, out);
        }
    }
    _tile_release();
  }
}

static inline __m512 sin_roughly(__m512 x) { // absolute error 1e-6, of x up to a few thousand; its sign may be wrong
  const __m512 turns = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.318309886f)), 0);
  __m512 r = _mm512_fnmadd_ps(turns, _mm512_set1_ps(3.14159274f), x);
  r = _mm512_fnmadd_ps(turns, _mm512_set1_ps(-8.74227766e-8f), r);
  __m512 s = _mm512_mul_ps(r, r), sum = _mm512_set1_ps(2.6083159809786593e-6f);
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(-1.9810690719168633e-4f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(8.3330785855650902e-3f));
  sum = _mm512_fmadd_ps(sum, s, _mm512_set1_ps(-1.6666659712791443e-1f));
  return _mm512_fmadd_ps(_mm512_mul_ps(r, s), sum, r);
}

// out[n_before + t] = x + sin(pace x)^2 inverse, zeros in the rows before and behind; x: (n, width), width a multiple
// of 16, out: (n_before + n + n_behind, width)
void nightingale_snake(const float *x, const float *pace, const float *inverse, int n, int width, int n_before,
                       int n_behind, uint16_t *out, int n_threads) {
  memset(out, 0, (int64_t)n_before * width * 2);
  memset(out + (int64_t)(n_before + n) * width, 0, (int64_t)n_behind * width * 2);
  out += (int64_t)n_before * width;
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int t = 0; t < n; t++)
    for (int i = 0; i < width; i += 16) {
      const int64_t at = (int64_t)t * width + i;
      __m512 v = _mm512_loadu_ps(x + at), wave = sin_roughly(_mm512_mul_ps(v, _mm512_loadu_ps(pace + i)));
      store_bf16(out + at, _mm512_fmadd_ps(_mm512_mul_ps(wave, wave), _mm512_loadu_ps(inverse + i), v));
    }
}

const int32_t *nightingale_convolve_layout(void) {
  static const int32_t layout[] = {ABI_VERSION, 3, LAYOUT(Convolution, dilation), LAYOUT(Norm, eps),
                                   LAYOUT(ConvolutionArgs, gelu)};
  return layout;
}
