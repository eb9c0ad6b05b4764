// The fused operations of flow and vocoder with products in 8 bits, for processors without AMX.
//
// Weights are signed bytes with a scale for every output, activations signed bytes with a scale for every frame, found
// anew in each call. Products of a frame, for each tap, are summed as whole numbers, exactly; taps are then added up in one
// order. Attention, norms and activations are fp32. Every frame is computed by one thread in one order, whatever is computed
// beside it: results depend neither on how many threads there are nor on other frames.
//
// Outputs are taken 16 at a time (a panel), frames ROWS at a time, so that the sums stay in registers. Vectors are
// GNU C's, of the width of the processor; only products of bytes are written for each kind.

#include "fused.h"
#include "processor.h"
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__) || defined(__AVX512VNNI__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif
#if defined(_OPENMP)
#include <omp.h>
#else
static int omp_get_thread_num(void) { return 0; }
#endif

#if defined(__AVX512VNNI__)
#define WIDTH 16 // numbers of a vector
#define ROWS 12  // of a tile
#define STEP 4   // inputs whose products one instruction adds up
typedef int8_t Code;
#elif defined(__AVX2__)
#define WIDTH 8
#define ROWS 6
#define STEP 2
typedef int16_t Code;
#else
#define WIDTH 4
#define ROWS 6
#define STEP 4
typedef int8_t Code;
#endif
#define PANEL 16                // outputs
#define VECTORS (PANEL / WIDTH) // of a panel
#define COLUMNS 32              // outputs that a thread takes at a time
#define FRAMES 48               // and frames: a multiple of ROWS
#define MAX_D 64                // widest head
#define QUERIES 16              // at a time
#define AHEAD 16                // keys that memory is asked for meanwhile: rows are pages apart, nobody guesses them
#define KEYS 64                 // whose values stay at hand
#define LOG2_E 1.44269504f
#define INLINE static inline __attribute__((always_inline))
#define EACH_ROW _Pragma("GCC unroll 12")

typedef float Floats __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));
typedef Code Codes __attribute__((vector_size(sizeof(Code) * WIDTH), aligned(1), may_alias));

INLINE Floats all(float x) { return x - (Floats){0}; }
INLINE Floats load(const float *from) { return *(const Floats *)from; }
INLINE void store(float *to, Floats x) { *(Floats *)to = x; }
INLINE Floats choose(Ints which, Floats a, Floats b) { return (Floats)((which & (Ints)a) | (~which & (Ints)b)); }
INLINE Floats largest(Floats a, Floats b) { return choose(a > b, a, b); }
INLINE Floats smallest(Floats a, Floats b) { return choose(a < b, a, b); }

INLINE Floats load_bf16(const uint16_t *from) {
  return (Floats)(__builtin_convertvector(*(const Halves *)from, Bits) << 16);
}

INLINE void store_bf16(uint16_t *to, Floats x) { // to nearest, ties to even
  const Bits bits = (Bits)x;
  *(Halves *)to = __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, Halves);
}

#define NEAREST 12582912.0f // 1.5 * 2^23: what is added to it is rounded to a whole number

INLINE Floats rounded(Floats x) { return x + NEAREST - NEAREST; }

// a * b + c, rounded once. Elsewhere compilers may do so or not, but alike for every frame.
INLINE Floats fused(Floats a, Floats b, Floats c) {
#if defined(__AVX512VNNI__)
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_FEATURE_DOTPROD)
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  for (int i = 0; i < WIDTH; i++) c[i] = fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

INLINE float sum_of(Floats x) {
  float sum = 0;
  for (int i = 0; i < WIDTH; i++) sum += x[i];
  return sum;
}

INLINE Floats exp2_of(Floats x) { // relative error 2e-7, of x between -126 and 126
  x = largest(smallest(x, all(126)), all(-126));
  const Floats whole = rounded(x), rest = x - whole;
  Floats sum = all(1.8775767e-3f);
  sum = sum * rest + 8.9893397e-3f;
  sum = sum * rest + 5.5826318e-2f;
  sum = sum * rest + 2.4015361e-1f;
  sum = sum * rest + 6.9315308e-1f;
  sum = sum * rest + 1.0f;
  return (Floats)((Ints)sum + (__builtin_convertvector(whole, Ints) << 23));
}

INLINE Floats gelu(Floats x) { // x times the normal distribution: a polynomial from -4.25 to 4.25; error 6e-5
  const Floats t = largest(smallest(x, all(4.25f)), all(-4.25f)), s = t * t;
  Floats sum = all(6.18323795e-11f);
  sum = sum * s - 5.85995341e-09f;
  sum = sum * s + 2.44775606e-07f;
  sum = sum * s - 6.00466365e-06f;
  sum = sum * s + 9.78003663e-05f;
  sum = sum * s - 1.13874464e-03f;
  sum = sum * s + 9.93426330e-03f;
  sum = sum * s - 6.65782019e-02f;
  sum = sum * s + 3.99071813e-01f;
  return x * (sum * t + 0.5f);
}

INLINE Floats mish(Floats x) { // x tanh(log(1 + exp(x)))
  const Floats e = exp2_of(smallest(x, all(20)) * LOG2_E), w = e * (e + 2);
  return x * w / (w + 2);
}

INLINE Floats sine(Floats x) { // absolute error 1e-6, of x up to a few thousand; its sign may be wrong
  const Floats turns = rounded(x * 0.318309886f);
  const Floats r = x - turns * 3.14159274f + turns * 8.74227766e-8f, s = r * r;
  Floats sum = all(2.6083159809786593e-6f);
  sum = sum * s - 1.9810690719168633e-4f;
  sum = sum * s + 8.3330785855650902e-3f;
  sum = sum * s - 1.6666659712791443e-1f;
  return r * s * sum + r;
}

// ---- weights and activations to bytes ----

static int whole_panels(int n) { return (n + 31) / 32 * 32; }

int64_t nightingale_pack_bytes(int n_out, int n_in, int n_taps) {
  return (int64_t)whole_panels(n_out) * (whole_panels(n_in) * n_taps + (int)sizeof(float));
}

static inline const float *scales_of(const Convolution *c) {
  return (const float *)((const int8_t *)c->weights + (int64_t)c->n_out * c->n_in * c->n_taps);
}

static inline const int8_t *panel_of(const Convolution *c, int out, int tap) {
  return (const int8_t *)c->weights + ((int64_t)out / PANEL * c->n_taps + tap) * c->n_in * PANEL;
}

// (n_out, n_in, n_taps) -> [n_out / PANEL][n_taps][n_in / STEP][PANEL][STEP], then a scale for every output. VNNI takes
// one of the factors without a sign: it is the weight, plus 128.
void nightingale_pack(const float *from, int n_out, int n_in, int n_taps, void *to, int n_threads) {
  const int all_out = whole_panels(n_out), all_in = whole_panels(n_in);
  float *scales = (float *)((int8_t *)to + (int64_t)all_out * all_in * n_taps);
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int out = 0; out < all_out; out++) {
    const float *weights = from + (int64_t)out * n_in * n_taps;
    float most = 0;
    for (int i = 0; out < n_out && i < n_in * n_taps; i++) most = fmaxf(most, fabsf(weights[i]));
    const float inverse = most > 0 ? 127 / most : 0;
    scales[out] = most / 127;
    for (int tap = 0; tap < n_taps; tap++)
      for (int in = 0; in < all_in; in++) {
        const int is_there = out < n_out && in < n_in;
        const int code = is_there ? (int)rint((double)weights[in * n_taps + tap] * inverse) : 0;
        const int64_t panel = ((int64_t)out / PANEL * n_taps + tap) * all_in * PANEL;
        ((int8_t *)to)[panel + (in / STEP * PANEL + out % PANEL) * STEP + in % STEP] =
#if defined(__AVX512VNNI__)
            (int8_t)(code + 128);
#else
            (int8_t)code;
#endif
      }
  }
}

typedef struct { // frames as bytes; some more of them than there are can be read
  Code *codes;    // (n, n_in)
  float *scales;  // (n,)
  int32_t *start; // (n,): minus 128 times the codes, for VNNI
} Quantized;

static Quantized quantized_in(void *scratch, int64_t n, int n_in) {
  Code *codes = scratch;
  float *scales = (float *)(codes + (n + ROWS) * n_in);
  return (Quantized){codes, scales, (int32_t *)(scales + n + ROWS)};
}

static inline int reach_of(const Convolution *c) { return (c->n_taps - 1) * c->dilation; }

int64_t nightingale_convolve_bytes(const Convolution *c, int n_rows, int n) {
  const int64_t n_seen = (int64_t)n_rows * (n + reach_of(c));
  return (n_seen + ROWS) * (c->n_in * (int64_t)sizeof(Code) + 8);
}

static void measure_row(const float *x, int width, float eps, float *mean, float *scale) {
  Floats sum = all(0), squares = all(0);
  for (int i = 0; i < width; i += WIDTH) sum += load(x + i);
  *mean = sum_of(sum) / width;
  for (int i = 0; i < width; i += WIDTH) {
    const Floats off = load(x + i) - *mean;
    squares += off * off;
  }
  *scale = 1 / sqrtf(sum_of(squares) / width + eps);
}

INLINE Floats normed(const float *x, int i, const Norm *norm, float mean, float scale) {
  return (load(x + i) - mean) * scale * load(norm->weight + i) + load(norm->bias + i);
}

// A frame of n numbers, which is changed
static void quantize_row(float *x, int n, Quantized to, int64_t at) {
  Floats most = all(0);
  float largest_of_all = 0;
  for (int i = 0; i < n; i += WIDTH) most = largest(most, (Floats)((Bits)load(x + i) & 0x7fffffff));
  for (int i = 0; i < WIDTH; i++) largest_of_all = most[i] > largest_of_all ? most[i] : largest_of_all;
  const float inverse = largest_of_all > 0 ? 127 / largest_of_all : 0;
  to.scales[at] = largest_of_all / 127;
  Ints sum = {0};
  for (int i = 0; i < n; i += WIDTH) {
    const Ints code = (Ints)fused(load(x + i), all(inverse), all(NEAREST)) - 0x4b400000; // its bits
    sum += code;
    *(Codes *)(to.codes + at * n + i) = __builtin_convertvector(code, Codes);
  }
  int32_t total = 0;
  for (int i = 0; i < WIDTH; i++) total += sum[i];
  to.start[at] = -128 * total;
}

// ---- products ----

// sums[r][v] += the products of n_in inputs, of `n_rows` frames and a panel of outputs
INLINE void dot_rows(const Code *x, int n_in, const int8_t *w, int n_rows, Ints (*sums)[VECTORS]) {
  for (int k = 0; k < n_in; k += STEP, w += PANEL * STEP) {
#if defined(__AVX512VNNI__)
    const __m512i weights = _mm512_loadu_si512(w);
    EACH_ROW for (int r = 0; r < n_rows; r++) {
      int32_t four;
      memcpy(&four, x + (int64_t)r * n_in + k, 4);
      sums[r][0] = (Ints)_mm512_dpbusd_epi32((__m512i)sums[r][0], weights, _mm512_set1_epi32(four));
    }
#elif defined(__AVX2__)
    const __m256i near = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w));
    const __m256i far = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(w + 16)));
    EACH_ROW for (int r = 0; r < n_rows; r++) {
      int32_t two;
      memcpy(&two, x + (int64_t)r * n_in + k, 4);
      const __m256i codes = _mm256_set1_epi32(two);
      sums[r][0] += (Ints)_mm256_madd_epi16(near, codes);
      sums[r][1] += (Ints)_mm256_madd_epi16(far, codes);
    }
#elif defined(__ARM_FEATURE_DOTPROD)
    int8x16_t weights[VECTORS];
    EACH_ROW for (int v = 0; v < VECTORS; v++) weights[v] = vld1q_s8(w + 16 * v);
    EACH_ROW for (int r = 0; r < n_rows; r++) {
      int32_t four;
      memcpy(&four, x + (int64_t)r * n_in + k, 4);
      const int8x16_t codes = vreinterpretq_s8_s32(vdupq_n_s32(four));
      EACH_ROW for (int v = 0; v < VECTORS; v++)
        sums[r][v] = (Ints)vdotq_s32((int32x4_t)sums[r][v], weights[v], codes);
    }
#else
    for (int r = 0; r < n_rows; r++)
      for (int o = 0; o < PANEL; o++)
        for (int i = 0; i < STEP; i++) sums[r][o / WIDTH][o % WIDTH] += w[o * STEP + i] * x[(int64_t)r * n_in + k + i];
#endif
  }
}

// made[r] = sums of a panel of outputs for `n_rows` frames, from frame `at` of x on
INLINE void sum_tile(const Convolution *c, Quantized x, int64_t at, int out, int n_rows, float (*made)[PANEL]) {
  for (int tap = 0; tap < c->n_taps; tap++) {
    const int64_t first = at + (int64_t)tap * c->dilation;
    Ints sums[ROWS][VECTORS];
    EACH_ROW for (int r = 0; r < n_rows; r++)
      EACH_ROW for (int v = 0; v < VECTORS; v++)
#if defined(__AVX512VNNI__)
        sums[r][v] = x.start[first + r] - (Ints){0};
#else
        sums[r][v] = (Ints){0};
#endif
    dot_rows(x.codes + first * c->n_in, c->n_in, panel_of(c, out, tap), n_rows, sums);
    EACH_ROW for (int r = 0; r < n_rows; r++)
      EACH_ROW for (int v = 0; v < VECTORS; v++) {
        const Floats before = tap ? load(made[r] + v * WIDTH) : all(0);
        const Floats scale = all(x.scales[first + r]);
        store(made[r] + v * WIDTH, fused(__builtin_convertvector(sums[r][v], Floats), scale, before));
      }
  }
}

static void finish_row(const Convolution *c, const ConvolutionArgs *p, const float *made, int64_t row, int out) {
  for (int i = 0; i < PANEL; i += WIDTH) {
    const int64_t at = row * c->n_out + out + i;
    Floats y = load(made + i) * load(scales_of(c) + out + i) + load(c->bias + out + i);
    if (p->residual) y += load(p->residual + at);
    if (p->gelu) y = gelu(y);
    if (p->out_fp32) store(p->out_fp32 + at, y);
    else store_bf16(p->out_bf16 + at, y);
  }
}

static void quantize_frames(const Convolution *c, const ConvolutionArgs *p, int64_t n, Quantized to) {
#pragma omp for schedule(static)
  for (int64_t i = 0; i < n; i++) {
    float row[c->n_in], mean, scale;
    if (p->norm) {
      const float *from = p->stream + i * c->n_in;
      measure_row(from, c->n_in, p->norm->eps, &mean, &scale);
      for (int j = 0; j < c->n_in; j += WIDTH) store(row + j, normed(from, j, p->norm, mean, scale));
    } else {
      for (int j = 0; j < c->n_in; j += WIDTH) store(row + j, load_bf16(p->x + i * c->n_in + j));
    }
    quantize_row(row, c->n_in, to, i);
  }
}

// Frames `begin` to `end` of a row, from frame `first` of x on, and a panel of outputs
static void convolve_panel(const Convolution *c, const ConvolutionArgs *p, Quantized x, int64_t first, int64_t row,
                           int begin, int end, int out) {
  float made[ROWS][PANEL];
  for (int t = begin; t < end; t += ROWS) {
    const int n_here = end - t < ROWS ? end - t : ROWS;
    if (n_here > ROWS * 2 / 3) sum_tile(c, x, first + t, out, ROWS, made);
    else if (n_here > ROWS / 3) sum_tile(c, x, first + t, out, ROWS * 2 / 3, made);
    else sum_tile(c, x, first + t, out, ROWS / 3, made);
    for (int r = 0; r < n_here; r++) finish_row(c, p, made[r], row * p->n + t + r, out);
  }
}

// Threads take blocks of frames and outputs. Without reach, all rows are one.
void nightingale_convolve(const Convolution *c, const ConvolutionArgs *given, int n_threads) {
  ConvolutionArgs args = *given, *p = &args;
  const int reach = reach_of(c);
  if (!reach) p->n *= p->n_rows, p->n_rows = 1;
  const int64_t n_seen = p->n + reach;
  const int n_blocks = (p->n + FRAMES - 1) / FRAMES, n_columns = c->n_out / COLUMNS;
  const Quantized x = quantized_in(p->scratch, p->n_rows * n_seen, c->n_in);
#pragma omp parallel num_threads(n_threads)
  {
    quantize_frames(c, p, p->n_rows * n_seen, x);
#pragma omp for schedule(dynamic, 1)
    for (int unit = 0; unit < p->n_rows * n_blocks * n_columns; unit++) {
      const int row = unit / n_columns / n_blocks, begin = unit / n_columns % n_blocks * FRAMES;
      const int end = begin + FRAMES < p->n ? begin + FRAMES : p->n, out = unit % n_columns * COLUMNS;
      for (int panel = 0; panel < COLUMNS; panel += PANEL)
        convolve_panel(c, p, x, row * n_seen, row, begin, end, out + panel);
    }
  }
}

// ---- attention ----

// out[r][0 .. PANEL] = sum over k of a[r * a_row + k * a_step] * b[k * b_step ...], for `n_rows` rows, or added to it
INLINE void multiply_tile(const float *a, int a_row, int a_step, const float *b, int b_step, int n, int n_rows, float *out,
                          int out_row, int add) {
  Floats sums[ROWS][VECTORS];
  EACH_ROW for (int r = 0; r < n_rows; r++)
    EACH_ROW for (int v = 0; v < VECTORS; v++) sums[r][v] = add ? load(out + r * out_row + v * WIDTH) : all(0);
  for (int k = 0; k < n; k++, a += a_step, b += b_step) {
    Floats right[VECTORS];
    EACH_ROW for (int v = 0; v < VECTORS; v++) right[v] = load(b + v * WIDTH);
    EACH_ROW for (int r = 0; r < n_rows; r++)
      EACH_ROW for (int v = 0; v < VECTORS; v++) sums[r][v] += a[r * a_row] * right[v];
  }
  EACH_ROW for (int r = 0; r < n_rows; r++)
    EACH_ROW for (int v = 0; v < VECTORS; v++) store(out + r * out_row + v * WIDTH, sums[r][v]);
}

typedef struct { // of one thread, for one head
  float *keys, *values; // (n_padded, d)
  float *scores;        // (n_padded, QUERIES)
} HeadSpace;

static int64_t padded(int64_t n) { return n + ROWS; }

int64_t nightingale_attend_bytes(int n_keys) { return padded(n_keys) * (2 * MAX_D + QUERIES) * (int64_t)sizeof(float); }

static void read_head(const Segment *segments, int n_segments, int64_t row, int64_t from, int d, HeadSpace to) {
  for (const Segment *s = segments; s < segments + n_segments; s++)
    for (int i = 0; i < s->n; i++, to.keys += d, to.values += d) {
      const int64_t at = (row * s->n + i) * s->stride + from, soon = at + AHEAD * s->stride;
      for (int j = 0; j < d; j += 32) __builtin_prefetch(s->keys + soon + j), __builtin_prefetch(s->values + soon + j);
      for (int j = 0; j < d; j += WIDTH) {
        store(to.keys + j, load_bf16(s->keys + at + j));
        store(to.values + j, load_bf16(s->values + at + j));
      }
    }
  memset(to.keys, 0, ROWS * d * sizeof(float)); // keys behind the last are computed with
}

// Scores of QUERIES queries, by key, to weights; `sums` of them
static void soften(float *scores, int n, float *sums) {
  for (int v = 0; v < QUERIES; v += WIDTH) {
    Floats most = load(scores + v), sum = all(0);
    for (int k = 1; k < n; k++) most = largest(most, load(scores + k * QUERIES + v));
    for (int k = 0; k < n; k++) {
      const Floats weight = exp2_of(load(scores + k * QUERIES + v) - most);
      store(scores + k * QUERIES + v, weight);
      sum += weight;
    }
    store(sums + v, sum);
  }
}

// made[i] grows by the values of `n` keys from `first` on, at most KEYS, by their weights for query i
static void sum_values(HeadSpace s, int first, int n, int d, float (*made)[MAX_D]) {
  const float *weights = s.scores + (int64_t)first * QUERIES, *values = s.values + (int64_t)first * d;
  for (int j = 0; j < d; j += PANEL) {
    int i = 0;
    for (; i + ROWS <= QUERIES; i += ROWS)
      multiply_tile(weights + i, 1, QUERIES, values + j, d, n, ROWS, made[i] + j, MAX_D, first > 0);
    multiply_tile(weights + i, 1, QUERIES, values + j, d, n, QUERIES % ROWS, made[i] + j, MAX_D, first > 0);
  }
}

// `n` queries, at most QUERIES, (n, d), `stride` apart
static void attend_queries(const uint16_t *queries, int64_t stride, int n, int d, int n_keys, HeadSpace s, uint16_t *out,
                           int64_t out_stride) {
  float turned[MAX_D][QUERIES], sums[QUERIES], made[QUERIES][MAX_D];
  const float factor = LOG2_E / sqrtf(d);
  memset(turned, 0, sizeof turned);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < d; j++) {
      uint32_t bits = (uint32_t)queries[i * stride + j] << 16;
      float x;
      memcpy(&x, &bits, 4);
      turned[j][i] = x * factor;
    }
  for (int k = 0; k < n_keys; k += ROWS)
    multiply_tile(s.keys + (int64_t)k * d, d, 1, turned[0], QUERIES, d, ROWS, s.scores + (int64_t)k * QUERIES, QUERIES,
                  0);
  soften(s.scores, n_keys, sums);
  for (int k = 0; k < n_keys; k += KEYS) sum_values(s, k, n_keys - k < KEYS ? n_keys - k : KEYS, d, made);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < d; j += WIDTH) store_bf16(out + i * out_stride + j, load(made[i] + j) * (1 / sums[i]));
}

// Every query, (rows, n_queries, heads * d), attends to every key of all segments, as if they were one. `places` is for
// other libraries.
void nightingale_attend(const uint16_t *queries, int64_t query_stride, const Segment *segments, int n_segments,
                        int n_rows, int n_heads, int d, int n_queries, int n_keys, uint16_t *out, uint8_t *scratch,
                        const uint16_t **places, int n_threads) {
  (void)places;
  const int64_t n_bytes = nightingale_attend_bytes(n_keys), width = (int64_t)n_heads * d, n = padded(n_keys);
#pragma omp parallel num_threads(n_threads)
  {
    float *mine = (float *)(scratch + omp_get_thread_num() * n_bytes);
    const HeadSpace space = {mine, mine + n * MAX_D, mine + 2 * n * MAX_D};
#pragma omp for schedule(dynamic, 1)
    for (int unit = 0; unit < n_rows * n_heads; unit++) {
      const int64_t row = unit / n_heads, from = (int64_t)(unit % n_heads) * d;
      read_head(segments, n_segments, row, from, d, space);
      for (int at = 0; at < n_queries; at += QUERIES) {
        const int n_here = n_queries - at < QUERIES ? n_queries - at : QUERIES;
        const int64_t query = row * n_queries + at;
        attend_queries(queries + query * query_stride + from, query_stride, n_here, d, n_keys, space,
                       out + query * width + from, width);
      }
    }
  }
}

// ---- norms and waves ----

// x, (n, width), grows by y, if there is any; out = norm(x)
void nightingale_add_norm(float *x, const uint16_t *y, const Norm *norm, int n, uint16_t *out, int n_threads) {
  const int width = norm->width;
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int row = 0; row < n; row++) {
    const int64_t at = (int64_t)row * width;
    float mean, scale;
    for (int i = 0; y && i < width; i += WIDTH) store(x + at + i, load(x + at + i) + load_bf16(y + at + i));
    measure_row(x + at, width, norm->eps, &mean, &scale);
    for (int i = 0; i < width; i += WIDTH) store_bf16(out + at + i, normed(x + at, i, norm, mean, scale));
  }
}

// mish(norm(h)) + shift + residual; all (n, width), shift (width,)
void nightingale_norm_mish(const uint16_t *h, const Norm *norm, const float *shift, const uint16_t *residual, int n,
                           uint16_t *out, float *out_fp32, int n_threads) {
  const int width = norm->width;
#pragma omp parallel for schedule(static) num_threads(n_threads)
  for (int row = 0; row < n; row++) {
    const int64_t at = (int64_t)row * width;
    float x[width], mean, scale;
    for (int i = 0; i < width; i += WIDTH) store(x + i, load_bf16(h + at + i));
    measure_row(x, width, norm->eps, &mean, &scale);
    for (int i = 0; i < width; i += WIDTH) {
      Floats y = mish(normed(x, i, norm, mean, scale));
      if (shift) y += load(shift + i);
      if (residual) y += load_bf16(residual + at + i);
      if (out_fp32) store(out_fp32 + at + i, y);
      else store_bf16(out + at + i, y);
    }
  }
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
    for (int i = 0; i < width; i += WIDTH) {
      const int64_t at = (int64_t)t * width + i;
      const Floats v = load(x + at), wave = sine(v * load(pace + i));
      store_bf16(out + at, wave * wave * load(inverse + i) + v);
    }
}

// Whether this processor has what the library was compiled for.
int nightingale_runs_here(void) { return has_vector_instructions(); }

const int32_t *nightingale_layout(void) {
  static const int32_t layout[] = {ABI_VERSION, 2, LAYOUT(Norm, eps), LAYOUT(Segment, n)};
  return layout;
}

const int32_t *nightingale_convolve_layout(void) {
  static const int32_t layout[] = {ABI_VERSION, 3, LAYOUT(Convolution, dilation), LAYOUT(Norm, eps),
                                   LAYOUT(ConvolutionArgs, gelu)};
  return layout;
}
