// A stack of transformer layers whose weights are small whole numbers, for the rows of one request or of many.
//
// Speaking is bound by reading weights from memory, so they are read once per step, as they are stored, by
// all threads and for all rows, and everything else happens in cache. A weight is (code - zero) * scale: 8 bits with zero 128 or
// 4 bits with zero 8, and a scale, in bfloat16, for every 64 of a row. Activations become signed bytes with a
// scale for every 64 of them. Every output is summed in one order by one thread: results do not depend on how
// many threads there are, nor on which other rows are computed beside. There are two orders: one for a few
// positions, as a step has them, and one for many, as a prompt has them, which is bound by products: see prompt.h.
//
// Knows nothing of tokens or Python: pointers and sizes in, numbers out. Allocates nothing.

#include "abi.h"
#include "processor.h"
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#if defined(__AVX512VNNI__) || defined(__AVX512BW__)
#define HAS_AVX512 1
#elif defined(__AVX2__)
#define ONLY_AVX2 1
#endif

#define GROUP 64   // weights that share a scale; also the width of an attention head
#define LANES 16   // partial sums of every output
#define BLOCK 32   // outputs that a thread takes at a time
#define MAX_OUTS 4 // outputs that are summed side by side
#if defined(HAS_AVX512)
#define MAX_ROWS 8 // activations that meet a weight while it is at hand
#else
#define MAX_ROWS 4
#endif

typedef struct {
  const uint8_t *codes;   // (n_out, n_in), or half as many bytes for 4 bits
  const uint16_t *scales; // (n_out, n_in / GROUP), bfloat16
  const float *bias;      // (n_out,), or none
  int32_t n_out, n_in, n_bits;
} Linear;

typedef struct {
  Linear qkv, out, up, down; // up: the gate's outputs, then the others, where there is a gate
  const float *norm1, *bias1, *norm2, *bias2; // (D,); without a bias it is a root-mean-square norm
} Layer;

typedef struct {
  const Layer *layers;
  const float *norm, *bias;
  const float *cos, *sin; // (n_positions, GROUP), or none
  int32_t n_layers, width, n_heads, d_ffn;
  int32_t has_gate; // silu(gate) * up, else gelu(up)
  float eps;
} Stack;

typedef union {
#if defined(ONLY_AVX2) // for weights of 8 bits, whose products fill more than 16
  int16_t words[GROUP / 16][16]; // of each half of the codes, those with even numbers, then the others
#endif
  struct {
    int8_t codes[GROUP];
    int32_t start[LANES]; // minus zero times the codes, so that weights need not be shifted
  };
} QuantBlock;

typedef struct {
  QuantBlock *blocks; // (n, n_in / GROUP); of a prompt: see prompt.h
  float *scales;   // (n, n_in / GROUP)
} Quantized;

typedef struct {
  float *x;          // (n, width), in and out
  float *mixed;      // (n, 3 * width)
  float *scores;     // (rows * heads, n_all), n_all of the longest
  Quantized quantized_x;  // (n, width)
  Quantized quantized_ffn;    // (n, d_ffn)
} Workspace;

typedef struct {
  uint16_t *const *keys, *const *values; // a layer's: (rows, heads, capacity, GROUP), bfloat16
  int32_t capacity, length;
} Cache;

typedef struct {
  int32_t n;
  const int32_t *layers, *heads; // pairs to be probed
  float *seen;                   // (n, n_all): how the last position of row 0 attends
} AttentionProbe;

typedef struct { // a request: what it has read, in rows of equal length, and what of it is to be seen
  Cache cache;
  AttentionProbe probe;
  int32_t n_rows;
} Slot;

static inline float from_bf16(uint16_t bits) {
  uint32_t bits32 = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &bits32, 4);
  return value;
}

static inline uint16_t to_bf16(float value) { // to nearest, ties to even; there are no NaNs here
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Sums of four neighbours' products, whole. Without VNNI, pairs are summed in 16 bits, which 128 * 127 * 2 does not
// fill: so the weight's sign goes to the activation first, whose codes are never -128.
#if defined(HAS_AVX512)
static inline __m512 load_bf16(const uint16_t *from) {
  __m512i bits32 = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits32, 16));
}

#if defined(__AVX512VNNI__)
typedef __m512i Weights; // 64 codes as they are: the zero is in the activations' start

static inline Weights weights_of(__m512i codes, int zero) {
  (void)zero;
  return codes;
}

static inline __m512i dot_fours(Weights w, __m512i codes, const int32_t *start) {
  return _mm512_dpbusd_epi32(_mm512_loadu_si512(start), w, codes);
}
#else
typedef struct {
  __m512i sizes;
  __mmask64 negative;
} Weights;

static inline Weights weights_of(__m512i codes, int zero) {
  const __m512i w = _mm512_sub_epi8(codes, _mm512_set1_epi8((char)zero));
  return (Weights){_mm512_abs_epi8(w), _mm512_movepi8_mask(w)};
}

static inline __m512i dot_fours(Weights w, __m512i codes, const int32_t *start) {
  (void)start;
  const __m512i signed_codes = _mm512_mask_sub_epi8(codes, w.negative, _mm512_setzero_si512(), codes);
  return _mm512_madd_epi16(_mm512_maddubs_epi16(w.sizes, signed_codes), _mm512_set1_epi16(1));
}
#endif
#elif defined(__ARM_FEATURE_DOTPROD)
static inline int8x16_t weights_of(uint8x16_t codes, int zero) { // code - 128 is a signed byte, too
  return vreinterpretq_s8_u8(vsubq_u8(codes, vdupq_n_u8((uint8_t)zero)));
}
#endif

#if defined(ONLY_AVX2)
static inline __m256 load_bf16(const uint16_t *from) {
  const __m256i bits32 = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits32, 16));
}
#endif

static inline float sum_lanes(const float *lane) {
  float s[LANES];
  memcpy(s, lane, sizeof s);
  for (int n = LANES / 2; n; n /= 2)
    for (int i = 0; i < n; i++) s[i] += s[i + n];
  return s[0];
}

#include "activation.h"

// ---- activations to bytes ----

static inline void codes_of(const float *x, int8_t *codes, float *scale) {
  float lane[LANES] = {0}, most = 0;
  for (int i = 0; i < GROUP; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
  for (int l = 0; l < LANES; l++) most = lane[l] > most ? lane[l] : most;
  *scale = most / 127;
  float inverse = most > 0 ? 127 / most : 0;
  for (int i = 0; i < GROUP; i++) codes[i] = (int8_t)rintf(x[i] * inverse);
}

static void quantize_group(const float *x, int zero, QuantBlock *to, float *scale) {
  codes_of(x, to->codes, scale);
#if defined(ONLY_AVX2)
  if (zero == 128) {
    int8_t codes[GROUP];
    memcpy(codes, to->codes, GROUP);
    for (int i = 0; i < GROUP; i++) to->words[i / 32 * 2 + i % 2][i % 32 / 2] = codes[i];
    return;
  }
#endif
  for (int i = 0; i < LANES; i++) {
    const int8_t *c = to->codes + 4 * i;
    to->start[i] = -zero * (c[0] + c[1] + c[2] + c[3]);
  }
}

static inline int zero_of_bits(int n_bits) { return n_bits == 8 ? 128 : 8; }

static inline int zero_of(const Linear *l) { return zero_of_bits(l->n_bits); }

#include "prompt.h"

// Group g of row i, as bytes, to where the products will look for it.
static inline void put_group(const float *x, int zero, int is_prompt, int64_t i, int n_groups, int g, Quantized to) {
  if (is_prompt) {
    put_transposed(x, zero, i, n_groups, g, to);
  } else {
    quantize_group(x, zero, to.blocks + i * n_groups + g, to.scales + i * n_groups + g);
  }
}

static void normalize(const float *x, int width, const float *weight, const float *bias, float eps, float *to) {
  float lane[LANES] = {0}, mean = 0;
  if (bias) {
    for (int i = 0; i < width; i += LANES)
      for (int l = 0; l < LANES; l++) lane[l] += x[i + l];
    mean = sum_lanes(lane) / width;
    memset(lane, 0, sizeof lane);
  }
  for (int i = 0; i < width; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
  float scale = 1 / sqrtf(sum_lanes(lane) / width + eps);
  for (int i = 0; i < width; i++) to[i] = (x[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
}

// ---- products ----

#if defined(ONLY_AVX2)
static inline float sum_vectors(__m256 near, __m256 far) { // in the order of `sum_lanes`
  const __m256 eight = _mm256_add_ps(near, far);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

typedef struct {
  __m256i part[4];
} Weights; // 64 of them

// Weights of 8 bits as signed words, in the order of QuantBlock's.
static inline Weights words_of(const uint8_t *codes) {
  const __m256i zero = _mm256_set1_epi16(128), mask = _mm256_set1_epi16(255);
  const __m256i near = _mm256_loadu_si256((const void *)codes), far = _mm256_loadu_si256((const void *)(codes + GROUP / 2));
  return (Weights){{_mm256_sub_epi16(_mm256_and_si256(near, mask), zero), _mm256_sub_epi16(_mm256_srli_epi16(near, 8), zero),
                    _mm256_sub_epi16(_mm256_and_si256(far, mask), zero), _mm256_sub_epi16(_mm256_srli_epi16(far, 8), zero)}};
}

static inline __m256i fours_of_words(Weights w, const QuantBlock *x, int half) {
  const __m256i *q = (const __m256i *)x->words[2 * half];
  return _mm256_add_epi32(_mm256_madd_epi16(w.part[2 * half], _mm256_loadu_si256(q)),
                          _mm256_madd_epi16(w.part[2 * half + 1], _mm256_loadu_si256(q + 1)));
}

// Weights of 4 bits as they are: pairs of their products, 15 * 127 * 2 at most, fit into 16 bits. The low halves of
// 32 bytes are the first 32 weights, the high halves the others.
static inline Weights halves_of(const uint8_t *codes) {
  const __m256i low = _mm256_set1_epi8(15), both = _mm256_loadu_si256((const void *)codes);
  return (Weights){{_mm256_and_si256(both, low), _mm256_and_si256(_mm256_srli_epi16(both, 4), low)}};
}

static inline __m256i fours_of_halves(Weights w, const QuantBlock *x, int half) {
  const __m256i pairs = _mm256_maddubs_epi16(w.part[half], _mm256_loadu_si256((const __m256i *)x->codes + half));
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return _mm256_add_epi32(fours, _mm256_loadu_si256((const __m256i *)x->start + half));
}

// Scales of n groups of weights, at most LANES, by those of `n_rows` activations, which are `stride` apart.
static inline __attribute__((always_inline)) void scale_rows(
    const uint16_t *scales, int n, const float *x, int stride, int n_rows, float (*to)[LANES]) {
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 scale = load_bf16(scales + i);
    for (int r = 0; r < n_rows; r++) _mm256_storeu_ps(to[r] + i, _mm256_mul_ps(scale, _mm256_loadu_ps(x + r * stride + i)));
  }
  for (; i < n; i++)
    for (int r = 0; r < n_rows; r++) to[r][i] = from_bf16(scales[i]) * x[r * stride + i];
}
#endif

// `n_outs` outputs of a linear layer for `n_rows` activations, `stride` groups apart; out: (n_outs, MAX_ROWS).
// The numbers are known where this is inlined, so that the sums stay in registers. However many rows there are, each is
// summed as if it were alone.
static inline __attribute__((always_inline)) void dot_tile(
    const Linear *l, int first, int n_outs, Quantized x, int stride, int n_rows, int n_bits, float (*out)[MAX_ROWS]) {
  const int n_groups = l->n_in / GROUP, n_bytes = GROUP * n_bits / 8;
  const uint8_t *codes = l->codes + (int64_t)first * n_groups * n_bytes;
  const uint16_t *scales = l->scales + (int64_t)first * n_groups;
#if defined(HAS_AVX512)
  const int ahead = n_outs * n_groups * n_bytes; // the next outputs are asked for while these are summed
  __m512 sums[MAX_OUTS][MAX_ROWS];
  for (int o = 0; o < n_outs; o++)
    for (int r = 0; r < n_rows; r++) sums[o][r] = _mm512_setzero_ps();
  const __m512i low = _mm512_set1_epi8(15);
  for (int part = 0; part < n_groups; part += LANES) { // scales of weights by scales of activations
    float factors[MAX_OUTS][MAX_ROWS][LANES];
    const int n_here = n_groups - part < LANES ? n_groups - part : LANES;
    const __mmask16 here = (__mmask16)((1u << n_here) - 1);
    for (int o = 0; o < n_outs; o++) {
      __m256i bits = _mm256_maskz_loadu_epi16(here, scales + (int64_t)o * n_groups + part);
      __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
      for (int r = 0; r < n_rows; r++)
        _mm512_storeu_ps(factors[o][r], _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(here, x.scales + r * stride + part)));
    }
    for (int i = 0; i < n_here; i++) {
      Weights w[MAX_OUTS];
      for (int o = 0; o < n_outs; o++) {
        const uint8_t *from = codes + ((int64_t)o * n_groups + part + i) * n_bytes;
        _mm_prefetch((const char *)from + ahead, _MM_HINT_T0);
        __m512i bytes;
        if (n_bits == 8) {
          bytes = _mm512_loadu_si512(from);
        } else { // the low halves of 32 bytes are the first 32 weights, the high halves the others
          __m256i half = _mm256_loadu_si256((const void *)from);
          bytes = _mm512_inserti64x4(_mm512_castsi256_si512(half), _mm256_srli_epi16(half, 4), 1);
          bytes = _mm512_and_si512(bytes, low);
        }
        w[o] = weights_of(bytes, zero_of_bits(n_bits));
      }
      for (int r = 0; r < n_rows; r++) {
        const QuantBlock *block = x.blocks + r * stride + part + i;
        const __m512i q = _mm512_loadu_si512(block->codes);
        for (int o = 0; o < n_outs; o++) {
          const __m512 dot = _mm512_cvtepi32_ps(dot_fours(w[o], q, block->start));
          sums[o][r] = _mm512_fmadd_ps(dot, _mm512_set1_ps(factors[o][r][i]), sums[o][r]);
        }
      }
    }
  }
  for (int o = 0; o < n_outs; o++)
    for (int r = 0; r < n_rows; r++) out[o][r] = _mm512_reduce_add_ps(sums[o][r]);
#elif defined(ONLY_AVX2)
  const int64_t ahead = (int64_t)n_outs * n_groups * n_bytes; // the next outputs are asked for while these are summed
  for (int o = 0; o < n_outs; o++) {
    __m256 sums[MAX_ROWS][2];
#pragma GCC unroll 4 // so that the sums stay in registers
    for (int r = 0; r < n_rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int part = 0; part < n_groups; part += LANES) {
      float factors[MAX_ROWS][LANES];
      const int n_here = n_groups - part < LANES ? n_groups - part : LANES;
      scale_rows(scales + (int64_t)o * n_groups + part, n_here, x.scales + part, stride, n_rows, factors);
      for (int i = 0; i < n_here; i++) {
        const uint8_t *from = codes + ((int64_t)o * n_groups + part + i) * n_bytes;
        _mm_prefetch((const char *)from + ahead, _MM_HINT_T0);
        const Weights w = n_bits == 8 ? words_of(from) : halves_of(from);
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
          const QuantBlock *block = x.blocks + r * stride + part + i;
          const __m256 factor = _mm256_broadcast_ss(&factors[r][i]);
#pragma GCC unroll 2
          for (int half = 0; half < 2; half++) {
            const __m256i dot = n_bits == 8 ? fours_of_words(w, block, half) : fours_of_halves(w, block, half);
            sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sums[r][half]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) out[o][r] = sum_vectors(sums[r][0], sums[r][1]);
  }
#elif defined(__ARM_FEATURE_DOTPROD) // lane by lane as above: the same bits
  const int zero = zero_of_bits(n_bits);
  const uint8x16_t low = vdupq_n_u8(15);
  for (int o = 0; o < n_outs; o++) {
    float32x4_t sums[MAX_ROWS][4];
    for (int r = 0; r < n_rows; r++)
      for (int part = 0; part < 4; part++) sums[r][part] = vdupq_n_f32(0);
    for (int g = 0; g < n_groups; g++) {
      const uint8_t *from = codes + ((int64_t)o * n_groups + g) * n_bytes;
      const uint8x16_t near = vld1q_u8(from), far = vld1q_u8(from + 16);
      int8x16_t w[4];
      if (n_bits == 8) {
        w[0] = weights_of(near, zero), w[1] = weights_of(far, zero);
        w[2] = weights_of(vld1q_u8(from + 32), zero), w[3] = weights_of(vld1q_u8(from + 48), zero);
      } else { // the low halves of 32 bytes are the first 32 weights, the high halves the others
        w[0] = weights_of(vandq_u8(near, low), zero), w[1] = weights_of(vandq_u8(far, low), zero);
        w[2] = weights_of(vshrq_n_u8(near, 4), zero), w[3] = weights_of(vshrq_n_u8(far, 4), zero);
      }
      const float scale = from_bf16(scales[(int64_t)o * n_groups + g]);
      for (int r = 0; r < n_rows; r++) {
        const int8_t *q = x.blocks[r * stride + g].codes;
        const float32x4_t factor = vdupq_n_f32(scale * x.scales[r * stride + g]);
        for (int part = 0; part < 4; part++) {
          const int32x4_t dot = vdotq_s32(vdupq_n_s32(0), w[part], vld1q_s8(q + 16 * part));
          sums[r][part] = vfmaq_f32(sums[r][part], vcvtq_f32_s32(dot), factor);
        }
      }
    }
    for (int r = 0; r < n_rows; r++) {
      float lane[LANES];
      for (int part = 0; part < 4; part++) vst1q_f32(lane + 4 * part, sums[r][part]);
      out[o][r] = sum_lanes(lane);
    }
  }
#else
  for (int o = 0; o < n_outs; o++) {
    float sums[MAX_ROWS][LANES] = {{0}};
    for (int g = 0; g < n_groups; g++) {
      const uint8_t *from = codes + ((int64_t)o * n_groups + g) * n_bytes;
      uint8_t w[GROUP];
      for (int i = 0; i < n_bytes; i++) {
        w[i] = n_bits == 8 ? from[i] : from[i] & 15;
        if (n_bits == 4) w[i + GROUP / 2] = from[i] >> 4;
      }
      float scale = from_bf16(scales[o * n_groups + g]);
      for (int r = 0; r < n_rows; r++) {
        const QuantBlock *q = x.blocks + r * stride + g;
        float factor = scale * x.scales[r * stride + g];
        for (int i = 0; i < LANES; i++) {
          int32_t dot = q->start[i];
          for (int j = 4 * i; j < 4 * i + 4; j++) dot += (int32_t)w[j] * q->codes[j];
          sums[r][i] += (float)dot * factor;
        }
      }
    }
    for (int r = 0; r < n_rows; r++) out[o][r] = sum_lanes(sums[r]);
  }
#endif
  if (l->bias)
    for (int o = 0; o < n_outs; o++)
      for (int r = 0; r < n_rows; r++) out[o][r] += l->bias[first + o];
}

#define TILE_OF(n_outs, n_rows, o)                                                     \
  if (l->n_bits == 8) dot_tile(l, first + o, n_outs, x, stride, n_rows, 8, out + o); \
  else dot_tile(l, first + o, n_outs, x, stride, n_rows, 4, out + o)

// The same for n rows from row `at` on, n at most MAX_ROWS.
static void dots(const Linear *l, int first, int n_outs, Quantized x, int at, int n, float (*out)[MAX_ROWS]) {
  const int stride = l->n_in / GROUP;
  x.blocks += (int64_t)at * stride;
  x.scales += (int64_t)at * stride;
  if (n_outs < MAX_OUTS) {
    for (int o = 0; o < n_outs; o++)
      for (int r = 0; r < n; r++) {
        Quantized row = {x.blocks + r * stride, x.scales + r * stride};
        float alone[1][MAX_ROWS];
        dot_tile(l, first + o, 1, row, stride, 1, l->n_bits, alone);
        out[o][r] = alone[0][0];
      }
    return;
  }
  switch (n) {
  case 1: TILE_OF(MAX_OUTS, 1, 0); return;
  case 2: TILE_OF(MAX_OUTS, 2, 0); return;
  case 3: TILE_OF(MAX_OUTS, 3, 0); return;
  case 4: TILE_OF(MAX_OUTS, 4, 0); return;
  }
#if defined(HAS_AVX512)
  for (int o = 0; o < MAX_OUTS; o += MAX_OUTS / 2) // registers are few
    switch (n) {
    case 5: TILE_OF(MAX_OUTS / 2, 5, o); break;
    case 6: TILE_OF(MAX_OUTS / 2, 6, o); break;
    case 7: TILE_OF(MAX_OUTS / 2, 7, o); break;
    default: TILE_OF(MAX_OUTS / 2, MAX_ROWS, o);
    }
#endif
}

static inline int smaller(int a, int b) { return a < b ? a : b; }

// The functions below are called by all threads together; each ends with everybody having finished.

// to (n, n_out), set or added to
static void multiply(const Linear *l, Quantized x, int n, int is_prompt, float *to, int add) {
  if (is_prompt) {
    multiply_prompt(l, x, n, to, add);
    return;
  }
#pragma omp for schedule(dynamic, 1)
  for (int block = 0; block < (l->n_out + BLOCK - 1) / BLOCK; block++) {
    int end = smaller((block + 1) * BLOCK, l->n_out);
    for (int at = 0; at < n; at += MAX_ROWS) {
      int n_here = smaller(n - at, MAX_ROWS);
      for (int first = block * BLOCK; first < end; first += MAX_OUTS) {
        float made[MAX_OUTS][MAX_ROWS];
        const int n_outs = smaller(MAX_OUTS, end - first);
        dots(l, first, n_outs, x, at, n_here, made);
        for (int i = 0; i < n_here; i++)
          for (int o = 0; o < n_outs; o++) {
            float *place = to + (int64_t)(at + i) * l->n_out + first + o;
            *place = add ? *place + made[o][i] : made[o][i];
          }
      }
    }
  }
}

static void norm_and_quantize(const Stack *s, const float *x, int n, int is_prompt, const float *weight,
                              const float *bias, int zero, Quantized to) {
  const int n_groups = s->width / GROUP;
#pragma omp for schedule(static)
  for (int i = 0; i < n; i++) {
    float normed[s->width];
    normalize(x + (int64_t)i * s->width, s->width, weight, bias, s->eps, normed);
    for (int g = 0; g < n_groups; g++) put_group(normed + g * GROUP, zero, is_prompt, i, n_groups, g, to);
  }
}

// GROUP outputs from `first` on, for n rows from row `at` on: to (n, GROUP)
static void dots_step(const Linear *l, int first, Quantized x, int at, int n, float (*to)[GROUP]) {
  for (int i = 0; i < GROUP; i += MAX_OUTS) {
    float made[MAX_OUTS][MAX_ROWS];
    dots(l, first + i, MAX_OUTS, x, at, n, made);
    for (int o = 0; o < MAX_OUTS; o++)
      for (int r = 0; r < n; r++) to[r][i + o] = made[o][r];
  }
}

static void ffn_up(const Stack *s, const Layer *layer, int n, int is_prompt, Quantized x, Quantized to) {
  const int n_groups = s->d_ffn / GROUP, zero = zero_of(&layer->down), n_most = is_prompt ? MAX_TILES * TILE : MAX_ROWS;
#pragma omp for schedule(dynamic, 1)
  for (int g = 0; g < n_groups; g++) {
    const int gate = g * GROUP, up = gate + s->d_ffn;
    for (int at = 0; at < n; at += n_most) {
      const int n_here = smaller(n - at, n_most);
      float made[MAX_TILES * TILE][GROUP], beside[MAX_TILES * TILE][GROUP];
      if (is_prompt) {
        dots_prompt(&layer->up, gate, gate + GROUP, x, at, n_here, made[0], GROUP, 0);
        if (s->has_gate) dots_prompt(&layer->up, up, up + GROUP, x, at, n_here, beside[0], GROUP, 0);
      } else {
        dots_step(&layer->up, gate, x, at, n_here, made);
        if (s->has_gate) dots_step(&layer->up, up, x, at, n_here, beside);
      }
      for (int r = 0; r < n_here; r++) {
        activate(s->has_gate, made[r], beside[r], GROUP);
        put_group(made[r], zero, is_prompt, at + r, n_groups, g, to);
      }
    }
  }
}

static void apply_rope(float *x, const float *cos, const float *sin) {
  for (int i = 0; i < GROUP / 2; i++) {
    float left = x[i], right = x[i + GROUP / 2];
    x[i] = left * cos[i] - right * sin[i];
    x[i + GROUP / 2] = right * cos[i + GROUP / 2] + left * sin[i + GROUP / 2];
  }
}

static inline float dot_key(const float *query, const uint16_t *key) {
#if defined(HAS_AVX512)
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < GROUP; i += LANES)
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(query + i), load_bf16(key + i), sum);
  return _mm512_reduce_add_ps(sum);
#elif defined(ONLY_AVX2)
  __m256 near = _mm256_setzero_ps(), far = near;
  for (int i = 0; i < GROUP; i += LANES) {
    near = _mm256_fmadd_ps(_mm256_loadu_ps(query + i), load_bf16(key + i), near);
    far = _mm256_fmadd_ps(_mm256_loadu_ps(query + i + 8), load_bf16(key + i + 8), far);
  }
  return sum_vectors(near, far);
#else
  float lane[LANES] = {0};
  for (int i = 0; i < GROUP; i += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += query[i + l] * from_bf16(key[i + l]);
  return sum_lanes(lane);
#endif
}

static void attend_one(const float *query, const uint16_t *keys, const uint16_t *values, int n_all, float *scores,
                       float *out) {
  float most = -INFINITY, total[LANES] = {0};
  for (int j = 0; j < n_all; j++) {
    __builtin_prefetch(keys + (int64_t)(j + 16) * GROUP), __builtin_prefetch(keys + (int64_t)(j + 16) * GROUP + 32);
    __builtin_prefetch(values + (int64_t)j * GROUP), __builtin_prefetch(values + (int64_t)j * GROUP + 32);
    scores[j] = dot_key(query, keys + (int64_t)j * GROUP);
    most = scores[j] > most ? scores[j] : most;
  }
  exp_of_differences(scores, n_all, most);
  for (int j = 0; j < n_all; j++) total[j % LANES] += scores[j];
  float inverse = 1 / sum_lanes(total);
  for (int j = 0; j < n_all; j++) scores[j] *= inverse;
#if defined(HAS_AVX512)
  __m512 sums[GROUP / LANES] = {0};
  for (int j = 0; j < n_all; j++)
    for (int i = 0; i < GROUP / LANES; i++)
      sums[i] = _mm512_fmadd_ps(_mm512_set1_ps(scores[j]), load_bf16(values + (int64_t)j * GROUP + i * LANES), sums[i]);
  for (int i = 0; i < GROUP / LANES; i++) _mm512_storeu_ps(out + i * LANES, sums[i]);
#elif defined(ONLY_AVX2)
  __m256 sums[GROUP / 8];
#pragma GCC unroll 8 // so that the sums stay in registers
  for (int i = 0; i < GROUP / 8; i++) sums[i] = _mm256_setzero_ps();
  for (int j = 0; j < n_all; j++) {
    const __m256 score = _mm256_broadcast_ss(scores + j);
#pragma GCC unroll 8
    for (int i = 0; i < GROUP / 8; i++)
      sums[i] = _mm256_fmadd_ps(score, load_bf16(values + (int64_t)j * GROUP + 8 * i), sums[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < GROUP / 8; i++) _mm256_storeu_ps(out + 8 * i, sums[i]);
#else
  memset(out, 0, GROUP * sizeof(float));
  for (int j = 0; j < n_all; j++)
    for (int i = 0; i < GROUP; i++) out[i] += scores[j] * from_bf16(values[(int64_t)j * GROUP + i]);
#endif
}

// Every row attends to its own request alone.
static void attend(const Stack *s, int index, const Slot *slots, int n_rows, int n_most, int n_new, Workspace *workspace) {
  const int width = s->width, zero = zero_of(&s->layers[index].out);
#pragma omp for schedule(dynamic, 1)
  for (int unit = 0; unit < n_rows * s->n_heads; unit++) {
    const int row = unit / s->n_heads, head = unit % s->n_heads;
    const Slot *slot = slots;
    int own = row; // row of its slot
    while (own >= slot->n_rows) own -= slot++->n_rows;
    const Cache *cache = &slot->cache;
    const int64_t begin = ((int64_t)own * s->n_heads + head) * cache->capacity * GROUP;
    uint16_t *keys = cache->keys[index] + begin, *values = cache->values[index] + begin;
    float *scores = workspace->scores + (int64_t)unit * n_most;
    for (int t = 0; t < n_new; t++) {
      const int at = cache->length + t;
      float *query = workspace->mixed + ((int64_t)row * n_new + t) * 3 * width + head * GROUP;
      float *key = query + width, *value = key + width, out[GROUP];
      if (s->cos) {
        apply_rope(query, s->cos + (int64_t)at * GROUP, s->sin + (int64_t)at * GROUP);
        apply_rope(key, s->cos + (int64_t)at * GROUP, s->sin + (int64_t)at * GROUP);
      }
      for (int i = 0; i < GROUP; i++) {
        query[i] *= 0.125f; // 1 / sqrt(GROUP)
        keys[(int64_t)at * GROUP + i] = to_bf16(key[i]);
        values[(int64_t)at * GROUP + i] = to_bf16(value[i]);
      }
      attend_one(query, keys, values, at + 1, scores, out);
      put_group(out, zero, n_new >= PROMPT, (int64_t)row * n_new + t, s->n_heads, head, workspace->quantized_x);
    }
    const AttentionProbe *probe = &slot->probe;
    const int n_all = cache->length + n_new;
    for (int w = 0; w < probe->n; w++)
      if (own == 0 && probe->layers[w] == index && probe->heads[w] == head)
        memcpy(probe->seen + (int64_t)w * n_all, scores, n_all * sizeof(float));
  }
}

// Reads n_new positions of every row of every slot behind what its cache holds; x, with the rows of one slot behind those
// of the other, becomes the normed last layer. The caller counts the positions as read afterwards.
void nightingale_read(const Stack *s, const Slot *slots, int n_slots, int n_new, Workspace *workspace, int n_threads) {
  int n_rows = 0, n_most = 0;
  for (int i = 0; i < n_slots; i++) {
    const int n_all = slots[i].cache.length + n_new;
    n_rows += slots[i].n_rows, n_most = n_all > n_most ? n_all : n_most;
  }
  const int n = n_rows * n_new, is_prompt = n_new >= PROMPT;
#pragma omp parallel num_threads(n_threads)
  {
    if (is_prompt) prepare_tiles();
    for (int index = 0; index < s->n_layers; index++) {
      const Layer *layer = s->layers + index;
      norm_and_quantize(s, workspace->x, n, is_prompt, layer->norm1, layer->bias1, zero_of(&layer->qkv), workspace->quantized_x);
      multiply(&layer->qkv, workspace->quantized_x, n, is_prompt, workspace->mixed, 0);
      attend(s, index, slots, n_rows, n_most, n_new, workspace);
      multiply(&layer->out, workspace->quantized_x, n, is_prompt, workspace->x, 1);
      norm_and_quantize(s, workspace->x, n, is_prompt, layer->norm2, layer->bias2, zero_of(&layer->up), workspace->quantized_x);
      ffn_up(s, layer, n, is_prompt, workspace->quantized_x, workspace->quantized_ffn);
      multiply(&layer->down, workspace->quantized_ffn, n, is_prompt, workspace->x, 1);
    }
#pragma omp for schedule(static)
    for (int i = 0; i < n; i++) {
      float *x = workspace->x + (int64_t)i * s->width;
      normalize(x, s->width, s->norm, s->bias, s->eps, x);
    }
    if (is_prompt) release_tiles();
  }
}

// to (n, n_out) = x (n, n_in) by one layer; `space` has room for the quantized x
void nightingale_multiply(const Linear *l, const float *x, int n, Quantized *space, float *to, int n_threads) {
  const int n_groups = l->n_in / GROUP;
#pragma omp parallel num_threads(n_threads)
  {
#pragma omp for schedule(static)
    for (int i = 0; i < n * n_groups; i++)
      put_group(x + (int64_t)i * GROUP, zero_of(l), 0, i / n_groups, n_groups, i % n_groups, *space);
    multiply(l, *space, n, 0, to, 0);
  }
}

// Whether this processor has what the library was compiled for.
int nightingale_runs_here(void) {
#if defined(__AMX_INT8__)
  return __builtin_cpu_supports("amx-int8") && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
  return has_vector_instructions();
#endif
}

// Whether work is shared among threads: Apple's compiler has no OpenMP.
int nightingale_has_openmp(void) {
#if defined(_OPENMP)
  return 1;
#else
  return 0;
#endif
}

int nightingale_quant_block_bytes(void) { return sizeof(QuantBlock); }

const int32_t *nightingale_layout(void) {
  static const int32_t layout[] = {
      ABI_VERSION, 8, LAYOUT(Linear, n_bits), LAYOUT(Layer, bias2), LAYOUT(Stack, eps), LAYOUT(Quantized, scales),
      LAYOUT(Workspace, quantized_ffn), LAYOUT(Cache, length), LAYOUT(AttentionProbe, seen), LAYOUT(Slot, n_rows)};
  return layout;
}
