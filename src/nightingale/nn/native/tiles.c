// Attention and what stands between the products of the flow, in bfloat16, for processors with matrix tiles (AMX).
//
// The products themselves are torch's: those of large matrices are as fast as the processor. Every row is computed
// by one thread in one order: results do not depend on how many threads there are. Knows nothing of stages.

#include "tiles.h"
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_D 64   // widest head; 32 is the other one
#define QUERIES 32 // at a time: two tiles
#define REQUEST_PERMISSION 0x1023 // arch_prctl(2)
#define TILE_DATA 18

// Whether this processor has tiles and the system lets us use them.
int nightingale_runs_here(void) {
  return __builtin_cpu_supports("avx512bf16") && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

// ---- attention ----

// 16 rows of 16 pairs, the rows behind n_rows empty -> pairs by rows
static inline void transpose16(const uint16_t *from, int64_t stride, int n_rows, uint32_t *to) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; i++) r[i] = i < n_rows ? _mm512_loadu_si512(from + i * stride) : _mm512_setzero_si512();
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    _mm512_storeu_si512(to + 16 * i, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_si512(to + 16 * (i + 8), _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
    _mm512_storeu_si512(to + 16 * (i + 4), _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
    _mm512_storeu_si512(to + 16 * (i + 12), _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

// (n, d), rows `stride` apart -> tiles of 16 keys, d / 32 for each of them: [16 pairs of numbers][16 keys]
static void pack_keys(const uint16_t *keys, int d, int64_t stride, int n, int64_t n_padded, uint32_t *to) {
  for (int64_t at = 0; at < n_padded; at += TILE)
    for (int half = 0; half < d / 32; half++, to += 256)
      transpose16(keys + at * stride + 32 * half, stride, n - at < TILE ? n - at : TILE, to);
}

// (n, d) -> tiles of 32 keys, d / 16 for each of them: [16 pairs of keys][16 numbers]
static void pack_values(const uint16_t *values, int d, int64_t stride, int n, uint32_t *to) {
  uint16_t order[32];
  for (int i = 0; i < 16; i++) order[2 * i] = i, order[2 * i + 1] = 32 + i;
  const __m512i low = _mm512_loadu_si512(order), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int at = 0; at < n; at += 32, to += d / 16 * 256)
    for (int j = 0; j < 16; j++) {
      const int a = at + 2 * j;
      for (int half = 0; half < d / 32; half++) {
        __m512i x = a < n ? _mm512_loadu_si512(values + a * stride + 32 * half) : _mm512_setzero_si512();
        __m512i y = a + 1 < n ? _mm512_loadu_si512(values + (a + 1) * stride + 32 * half) : _mm512_setzero_si512();
        _mm512_storeu_si512(to + (2 * half) * 256 + 16 * j, _mm512_permutex2var_epi16(x, low, y));
        _mm512_storeu_si512(to + (2 * half + 1) * 256 + 16 * j, _mm512_permutex2var_epi16(x, high, y));
      }
    }
}

// exp of scores times `scale` less the largest of them, zeros behind n; returns the sum
static float soften(const float *scores, float scale, int n, int n_padded, uint16_t *to) {
  const __m512 factor = _mm512_set1_ps(scale * LOG2_E);
  const int whole = n / TILE * TILE, fours = n / (4 * TILE) * (4 * TILE);
  const __mmask16 rest = (__mmask16)((1u << (n - whole)) - 1);
  __m512 most[4], total[4];
  for (int k = 0; k < 4; k++) most[k] = _mm512_set1_ps(-1e30f), total[k] = _mm512_setzero_ps();
  for (int j = 0; j < fours; j += 4 * TILE)
    for (int k = 0; k < 4; k++) most[k] = _mm512_max_ps(most[k], _mm512_loadu_ps(scores + j + k * TILE));
  for (int j = fours; j < whole; j += TILE) most[0] = _mm512_max_ps(most[0], _mm512_loadu_ps(scores + j));
  most[1] = _mm512_mask_max_ps(most[1], rest, most[1], _mm512_maskz_loadu_ps(rest, scores + whole));
  __m512 all = _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]));
  const __m512 shift = _mm512_set1_ps(-_mm512_reduce_max_ps(all) * scale * LOG2_E);
  for (int j = 0; j < fours; j += 4 * TILE)
    for (int k = 0; k < 4; k++) {
      __m512 p = exp2_roughly(_mm512_fmadd_ps(_mm512_loadu_ps(scores + j + k * TILE), factor, shift));
      total[k] = _mm512_add_ps(total[k], p);
      store_bf16(to + j + k * TILE, p);
    }
  for (int j = fours; j < n_padded; j += TILE) {
    const __mmask16 here = j < whole ? 0xffff : j == whole ? rest : 0;
    __m512 x = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(here, scores + j), factor, shift);
    __m512 p = _mm512_maskz_mov_ps(here, exp2_roughly(x));
    total[0] = _mm512_add_ps(total[0], p);
    store_bf16(to + j, p);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(total[0], total[1]), _mm512_add_ps(total[2], total[3])));
}

typedef struct {
  const uint16_t *queries, *keys, *values; // (n, d) each, rows so many numbers apart:
  int64_t query_stride, key_stride;
  int d, n_queries, n_keys;
  uint16_t *out;
  int64_t out_stride;
} Head;

static int64_t padded_to_tiles(int64_t n) { return (n + 2 * TILE - 1) / (2 * TILE) * (2 * TILE); }

static void attend_head(const Head *h, uint8_t *scratch) {
  const int n = h->n_keys, d = h->d;
  const int64_t n_padded = padded_to_tiles(n);
  uint32_t *keys = (uint32_t *)scratch, *values = keys + n_padded * d / 2;
  float *scores = (float *)(values + n_padded * d / 2), *made = scores + QUERIES * n_padded; // made: (QUERIES, d)
  uint16_t *weights = (uint16_t *)(made + QUERIES * d), *last = weights + QUERIES * n_padded;
  const float scale = d > 32 ? 0.125f : 0.17677670f; // 1 / sqrt(d)
  pack_keys(h->keys, d, h->key_stride, n, n_padded, keys);
  pack_values(h->values, d, h->key_stride, n, values);
  for (int at = 0; at < h->n_queries; at += QUERIES) {
    const int n_here = h->n_queries - at < QUERIES ? h->n_queries - at : QUERIES;
    const uint16_t *q = h->queries + at * h->query_stride;
    int64_t stride = h->query_stride;
    if (n_here < QUERIES) {
      memset(last, 0, QUERIES * d * sizeof(uint16_t));
      for (int i = 0; i < n_here; i++) memcpy(last + i * d, q + i * stride, d * sizeof(uint16_t));
      q = last, stride = d;
    }
    for (int64_t j = 0; j < n_padded; j += 2 * TILE) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int half = 0; half < d / 32; half++) {
        _tile_loadd(4, q + 32 * half, stride * 2);
        _tile_loadd(5, q + TILE * stride + 32 * half, stride * 2);
        _tile_loadd(6, keys + j * d / 2 + 256 * half, 64);
        _tile_loadd(7, keys + (j + TILE) * d / 2 + 256 * half, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, scores + j, n_padded * 4);
      _tile_stored(1, scores + j + TILE, n_padded * 4);
      _tile_stored(2, scores + TILE * n_padded + j, n_padded * 4);
      _tile_stored(3, scores + TILE * n_padded + j + TILE, n_padded * 4);
    }
    float sums[QUERIES];
    for (int i = 0; i < n_here; i++) sums[i] = soften(scores + i * n_padded, scale, n, n_padded, weights + i * n_padded);
    for (int at_d = 0; at_d < d; at_d += 2 * TILE) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t j = 0; j < n_padded; j += 2 * TILE) {
        _tile_loadd(4, weights + j, n_padded * 2);
        _tile_loadd(5, weights + TILE * n_padded + j, n_padded * 2);
        _tile_loadd(6, values + j * d / 2 + at_d * TILE, 64);
        _tile_loadd(7, values + j * d / 2 + at_d * TILE + 256, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, made + at_d, d * 4);
      _tile_stored(1, made + at_d + TILE, d * 4);
      _tile_stored(2, made + TILE * d + at_d, d * 4);
      _tile_stored(3, made + TILE * d + at_d + TILE, d * 4);
    }
    for (int i = 0; i < n_here; i++)
      for (int j = 0; j < d; j += TILE) {
        __m512 mean = _mm512_mul_ps(_mm512_loadu_ps(made + i * d + j), _mm512_set1_ps(1 / sums[i]));
        store_bf16(h->out + (at + i) * h->out_stride + j, mean);
      }
  }
}

// Bytes of scratch that one thread needs.
int64_t nightingale_attend_bytes(int n_keys) {
  int64_t n = padded_to_tiles(n_keys);
  return 2 * n * MAX_D * 2 + QUERIES * (n * 4 + MAX_D * 4 + n * 2 + MAX_D * 2) + 64;
}

// Every query attends to every key: (rows, n_queries, heads * d), and keys and values alike; strides in numbers.
void nightingale_attend(const uint16_t *queries, const uint16_t *keys, const uint16_t *values, int64_t query_stride,
                        int64_t key_stride, int n_rows, int n_heads, int d, int n_queries, int n_keys, uint16_t *out,
                        uint8_t *scratch, int n_threads) {
  const int64_t n_bytes = nightingale_attend_bytes(n_keys), width = (int64_t)n_heads * d;
#pragma omp parallel num_threads(n_threads)
  {
    configure_tiles();
    uint8_t *mine = scratch + omp_get_thread_num() * n_bytes;
#pragma omp for schedule(dynamic, 1)
    for (int unit = 0; unit < n_rows * n_heads; unit++) {
      const int64_t row = unit / n_heads, at = (int64_t)(unit % n_heads) * d;
      Head head = {
          .queries = queries + row * n_queries * query_stride + at,
          .keys = keys + row * n_keys * key_stride + at,
          .values = values + row * n_keys * key_stride + at,
          .query_stride = query_stride,
          .key_stride = key_stride,
          .d = d,
          .n_queries = n_queries,
          .n_keys = n_keys,
          .out = out + row * n_queries * width + at,
          .out_stride = width,
      };
      attend_head(&head, mine);
    }
    _tile_release();
  }
}

// ---- between the products ----

typedef struct {
  const float *weight, *bias; // (width,)
  int32_t width;              // a multiple of 16
  float eps;
} Norm;

// (x - mean) / deviation of a row that stays where it is
static void measure_row(const float *x, int width, float eps, __m512 *mean, __m512 *scale) {
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

// x += y, where there is a y, both (n, width); out = norm of x
void nightingale_add_norm(float *x, const uint16_t *y, const Norm *norm, int n, uint16_t *out, int n_threads) {
  const int width = norm->width;
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int row = 0; row < n; row++) {
    float *here = x + (int64_t)row * width;
    if (y)
      for (int i = 0; i < width; i += 16) {
        __m512 sum = _mm512_add_ps(_mm512_loadu_ps(here + i), load_bf16(y + (int64_t)row * width + i));
        _mm512_storeu_ps(here + i, sum);
      }
    __m512 mean, scale;
    measure_row(here, width, norm->eps, &mean, &scale);
    for (int i = 0; i < width; i += 16)
      store_bf16(out + (int64_t)row * width + i, normed(here, i, norm, mean, scale));
  }
}

static inline __m512 mish(__m512 x) { // x tanh(log(1 + e)) = x n / (n + 2), where e = exp(x), n = e (e + 2)
  __m512 e = exp2_roughly(_mm512_mul_ps(_mm512_min_ps(x, _mm512_set1_ps(20)), _mm512_set1_ps(LOG2_E)));
  __m512 n = _mm512_mul_ps(e, _mm512_add_ps(e, _mm512_set1_ps(2)));
  return _mm512_mul_ps(x, _mm512_mul_ps(n, inverse_roughly(_mm512_add_ps(n, _mm512_set1_ps(2)))));
}

// out = mish(norm of h) + shift; or, with `around`, wide = mish(norm of h) + around; all (n, width), shift (width,)
void nightingale_norm_mish(const uint16_t *h, const Norm *norm, const float *shift, const uint16_t *around, int n,
                           uint16_t *out, float *wide, int n_threads) {
  const int width = norm->width;
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int row = 0; row < n; row++) {
    const int64_t at = (int64_t)row * width;
    float x[width];
    __m512 mean, scale;
    for (int i = 0; i < width; i += 16) _mm512_storeu_ps(x + i, load_bf16(h + at + i));
    measure_row(x, width, norm->eps, &mean, &scale);
    for (int i = 0; i < width; i += 16) {
      __m512 y = mish(normed(x, i, norm, mean, scale));
      if (shift) y = _mm512_add_ps(y, _mm512_loadu_ps(shift + i));
      if (around) y = _mm512_add_ps(y, load_bf16(around + at + i));
      if (wide) _mm512_storeu_ps(wide + at + i, y);
      else store_bf16(out + at + i, y);
    }
  }
}
