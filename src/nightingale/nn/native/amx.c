// Attention and what stands between the products of the flow, in bfloat16, for processors with AMX.
//
// Every row is computed by one thread in one order: results do not depend on how many threads there are. Products are
// in convolve.c. Knows nothing of stages.

#include "amx.h"
#include "transpose.h"
#include <math.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_D 64   // widest head; 32 is the other one
#define QUERIES 32 // at a time: two tiles
#define BF16_ONE 0x3f80
#define LOG2_LARGEST 100 // of a weight before they are divided by their sum
#define LARGEST_WEIGHT 0x1p100f
#define REQUEST_PERMISSION 0x1023 // arch_prctl(2)
#define TILE_DATA 18

// Whether this processor has AMX and the system lets us use them.
int nightingale_runs_here(void) {
  return __builtin_cpu_supports("avx512bf16") && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

// ---- attention ----

typedef const uint16_t *Row;

// 16 pairs of each of 16 rows, those behind n_rows empty -> pairs by rows
static inline void pack_pairs(const Row *rows, int64_t at, int n_rows, uint32_t *to) {
  __m512i r[16];
  for (int i = 0; i < 16; i++) r[i] = i < n_rows ? _mm512_loadu_si512(rows[i] + at) : _mm512_setzero_si512();
  transpose16(r);
  for (int i = 0; i < 16; i++) _mm512_storeu_si512(to + 16 * i, r[i]);
}

// d numbers from `from` on of n rows -> tiles of 16 keys, d / 32 for each of them: [16 pairs of numbers][16 keys]
static void pack_keys(const Row *keys, int64_t from, int d, int n, int64_t n_padded, uint32_t *to) {
  for (int64_t at = 0; at < n_padded; at += TILE)
    for (int half = 0; half < d / 32; half++, to += 256)
      pack_pairs(keys + at, from + 32 * half, n - at < TILE ? n - at : TILE, to);
}

// Which key of a block of 32 stands at `place` among their weights: packing takes four of each half by turns.
static inline int key_at(int place) { return place / 8 * 4 + place % 4 + (place % 8 < 4 ? 0 : TILE); }

// The same of values -> tiles of 32 keys, d / 16 for each of them: [16 pairs of keys][16 numbers]
static void pack_values(const Row *values, int64_t from, int d, int n, uint32_t *to) {
  uint16_t order[32];
  for (int i = 0; i < 16; i++) order[2 * i] = i, order[2 * i + 1] = 32 + i;
  const __m512i low = _mm512_loadu_si512(order), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int at = 0; at < n; at += 32, to += d / 16 * 256)
    for (int j = 0; j < 16; j++) {
      const int a = at + key_at(2 * j);
      for (int half = 0; half < d / 32; half++) {
        const int64_t i = from + 32 * half;
        __m512i x = a < n ? _mm512_loadu_si512(values[a] + i) : _mm512_setzero_si512();
        __m512i y = a + 1 < n ? _mm512_loadu_si512(values[a + 1] + i) : _mm512_setzero_si512();
        _mm512_storeu_si512(to + (2 * half) * 256 + 16 * j, _mm512_permutex2var_epi16(x, low, y));
        _mm512_storeu_si512(to + (2 * half + 1) * 256 + 16 * j, _mm512_permutex2var_epi16(x, high, y));
      }
    }
}

// 2^x in bfloat16, of 32 numbers as (x + 127) * 256. Its bits, read as a whole number, are nearly x + 127: a parabola
// is the rest. Relative error 0.25 % (rounding alone: 0.17 %). Zero below 2^-127, never above LARGEST_WEIGHT.
static inline __m512i powers(__m512 a, __m512 b) {
  const __m512i one = _mm512_set1_epi16(256);
  __m512i n = _mm512_packus_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
  n = _mm512_min_epu16(n, _mm512_set1_epi16((short)((127 + LOG2_LARGEST) * 256)));
  __m512i part = _mm512_and_si512(n, _mm512_set1_epi16(255));
  __m512i arch = _mm512_mullo_epi16(part, _mm512_sub_epi16(one, part));
  n = _mm512_sub_epi16(n, _mm512_mulhrs_epi16(arch, _mm512_set1_epi16(44)));
  return _mm512_avg_epu16(n, _mm512_setzero_si512());
}

// A block of scores, (QUERIES, 32), to weights exp(scale * score - shift) in the order of `key_at`; adds to their sums
// those which `count` has ones for.
static void soften(const float *scores, float factor, const float *shifts, __m512i count, uint16_t *to, __m512 *sums) {
  const __m512 f = _mm512_set1_ps(factor);
  for (int i = 0; i < QUERIES; i++) {
    const __m512 shift = _mm512_set1_ps(shifts[i]);
    __m512 a = _mm512_fmadd_ps(_mm512_load_ps(scores + 32 * i), f, shift);
    __m512 b = _mm512_fmadd_ps(_mm512_load_ps(scores + 32 * i + TILE), f, shift);
    __m512i weights = powers(a, b);
    sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)weights, (__m512bh)count);
    _mm512_store_si512(to + 32 * i, weights);
  }
}

typedef struct {
  const uint16_t *queries; // (n, d), rows so many numbers apart:
  int64_t query_stride;
  const Row *keys, *values; // rows of all heads: this one's d numbers are in them from
  int64_t from;
  int d, n_queries, n_keys;
  uint16_t *out;
  int64_t out_stride;
} Head;

static int64_t padded_to_tiles(int64_t n) { return (n + 2 * TILE - 1) / (2 * TILE) * (2 * TILE); }

// scores of 32 queries and 32 keys
static inline void score_block(const uint16_t *q, int64_t stride, const uint32_t *keys, int d, float *scores) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int half = 0; half < d / 32; half++) {
    _tile_loadd(4, q + 32 * half, stride * 2);
    _tile_loadd(5, q + TILE * stride + 32 * half, stride * 2);
    _tile_loadd(6, keys + 256 * half, 64);
    _tile_loadd(7, keys + TILE * d / 2 + 256 * half, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, scores, 128);
  _tile_stored(1, scores + TILE, 128);
  _tile_stored(2, scores + TILE * 32, 128);
  _tile_stored(3, scores + TILE * 32 + TILE, 128);
}

// Weights are measured from the largest score of the first `n_looked` blocks of keys. A score that is larger still fits
// into the range of the numbers, as a rule, so one block is enough and no score is computed twice.
static void choose_shifts(const Head *h, const uint16_t *q, int64_t stride, const uint32_t *keys, int n_looked,
                          float factor, float *scores, float *shifts) {
  __m512 most[QUERIES];
  for (int i = 0; i < QUERIES; i++) most[i] = _mm512_set1_ps(-INFINITY);
  for (int j = n_looked - 1; j >= 0; j--) {
    const int n = h->n_keys - 32 * j;
    const __mmask16 here = n < TILE ? (1 << n) - 1 : 0xffff;
    const __mmask16 there = n < TILE ? 0 : n < 32 ? (1 << (n - TILE)) - 1 : 0xffff;
    score_block(q, stride, keys + j * 16 * h->d, h->d, scores);
    for (int i = 0; i < QUERIES; i++) {
      most[i] = _mm512_mask_max_ps(most[i], here, most[i], _mm512_load_ps(scores + 32 * i));
      most[i] = _mm512_mask_max_ps(most[i], there, most[i], _mm512_load_ps(scores + 32 * i + TILE));
    }
  }
  for (int i = 0; i < QUERIES; i++) shifts[i] = 127 * 256 - _mm512_reduce_max_ps(most[i]) * factor;
}

// Weights of 32 queries, block after block, and their sums; whether none grew out of range. The tiles score a block of
// keys while the vectors soften the one before.
static int weigh(const Head *h, const uint16_t *q, int64_t stride, const uint32_t *keys, int n_looked,
                 uint16_t *weights, float *sums) {
  const int n = h->n_keys, d = h->d, n_blocks = (n + 31) / 32;
  const float factor = 256 * LOG2_E * (d > 32 ? 0.125f : 0.17677670f); // 1 / sqrt(d), in 256ths of a power of two
  float scores[2][QUERIES * 32] __attribute__((aligned(64))), shifts[QUERIES];
  __m512 totals[QUERIES];
  uint16_t last[32];
  for (int place = 0; place < 32; place++) last[place] = 32 * (n_blocks - 1) + key_at(place) < n ? BF16_ONE : 0;
  for (int i = 0; i < QUERIES; i++) totals[i] = _mm512_setzero_ps();
  choose_shifts(h, q, stride, keys, n_looked, factor, scores[0], shifts); // and leaves scores of the first block
  for (int j = 0; j < n_blocks; j++) {
    if (j + 1 < n_blocks) score_block(q, stride, keys + (j + 1) * 16 * d, d, scores[(j + 1) % 2]);
    const __m512i count = j + 1 < n_blocks ? _mm512_set1_epi16(BF16_ONE) : _mm512_loadu_si512(last);
    soften(scores[j % 2], factor, shifts, count, weights + j * QUERIES * 32, totals);
  }
  int all_fit = 1;
  for (int i = 0; i < QUERIES; i++) {
    sums[i] = _mm512_reduce_add_ps(totals[i]);
    all_fit &= sums[i] < LARGEST_WEIGHT;
  }
  return all_fit;
}

static void attend_head(const Head *h, uint8_t *scratch) {
  const int n = h->n_keys, d = h->d;
  const int64_t n_padded = padded_to_tiles(n);
  uint32_t *keys = (uint32_t *)scratch, *values = keys + n_padded * d / 2;
  uint16_t *weights = (uint16_t *)(values + n_padded * d / 2), *last = weights + QUERIES * n_padded;
  float made[QUERIES * MAX_D] __attribute__((aligned(64))), sums[QUERIES];
  pack_keys(h->keys, h->from, d, n, n_padded, keys);
  pack_values(h->values, h->from, d, n, values);
  for (int at = 0; at < h->n_queries; at += QUERIES) {
    const int n_here = h->n_queries - at < QUERIES ? h->n_queries - at : QUERIES;
    const uint16_t *q = h->queries + at * h->query_stride;
    int64_t stride = h->query_stride;
    if (n_here < QUERIES) {
      memset(last, 0, QUERIES * d * sizeof(uint16_t));
      for (int i = 0; i < n_here; i++) memcpy(last + i * d, q + i * stride, d * sizeof(uint16_t));
      q = last, stride = d;
    }
    if (!weigh(h, q, stride, keys, 1, weights, sums)) weigh(h, q, stride, keys, n_padded / 32, weights, sums);
    for (int at_d = 0; at_d < d; at_d += 2 * TILE) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t j = 0; j < n_padded; j += 2 * TILE) {
        _tile_loadd(4, weights + j * QUERIES, 64);
        _tile_loadd(5, weights + j * QUERIES + TILE * 32, 64);
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
    for (int i = 0; i < n_here; i++) {
      const __m512 share = _mm512_set1_ps(1 / sums[i]);
      for (int j = 0; j < d; j += TILE)
        store_bf16(h->out + (at + i) * h->out_stride + j, _mm512_mul_ps(_mm512_load_ps(made + i * d + j), share));
    }
  }
}

// Bytes of scratch that one thread needs.
int64_t nightingale_attend_bytes(int n_keys) {
  int64_t n = padded_to_tiles(n_keys);
  return 2 * n * MAX_D * 2 + QUERIES * (n * 2 + MAX_D * 2);
}

static void find_rows(const Segment *segments, int n_segments, int row, const uint16_t **keys, const uint16_t **values) {
  for (const Segment *s = segments; s < segments + n_segments; s++)
    for (int i = 0; i < s->n; i++) {
      const int64_t at = ((int64_t)row * s->n + i) * s->stride;
      *keys++ = s->keys + at;
      *values++ = s->values + at;
    }
}

// Every query, (rows, n_queries, heads * d), attends to every key of all segments, as if they were one; `places` has
// room for the addresses of n_rows * n_keys keys, and as many values.
void nightingale_attend(const uint16_t *queries, int64_t query_stride, const Segment *segments, int n_segments,
                        int n_rows, int n_heads, int d, int n_queries, int n_keys, uint16_t *out, uint8_t *scratch,
                        const uint16_t **places, int n_threads) {
  const int64_t n_bytes = nightingale_attend_bytes(n_keys), width = (int64_t)n_heads * d;
  for (int row = 0; row < n_rows; row++)
    find_rows(segments, n_segments, row, places + 2 * row * n_keys, places + (2 * row + 1) * n_keys);
#pragma omp parallel num_threads(n_threads)
  {
    configure_tiles();
    uint8_t *mine = scratch + omp_get_thread_num() * n_bytes;
#pragma omp for schedule(dynamic, 1)
    for (int unit = 0; unit < n_rows * n_heads; unit++) {
      const int64_t row = unit / n_heads, at = (int64_t)(unit % n_heads) * d;
      Head head = {
          .queries = queries + row * n_queries * query_stride + at,
          .query_stride = query_stride,
          .keys = places + 2 * row * n_keys,
          .values = places + (2 * row + 1) * n_keys,
          .from = at,
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

// out = mish(norm of h) + shift; or, with `residual`, out_fp32 = mish(norm of h) + residual; all (n, width), shift (width,)
void nightingale_norm_mish(const uint16_t *h, const Norm *norm, const float *shift, const uint16_t *residual, int n,
                           uint16_t *out, float *out_fp32, int n_threads) {
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
      if (residual) y = _mm512_add_ps(y, load_bf16(residual + at + i));
      if (out_fp32) _mm512_storeu_ps(out_fp32 + at + i, y);
      else store_bf16(out + at + i, y);
    }
  }
}

const int32_t *nightingale_layout(void) {
  static const int32_t layout[] = {ABI_VERSION, 2, LAYOUT(Norm, eps), LAYOUT(Segment, n)};
  return layout;
}
