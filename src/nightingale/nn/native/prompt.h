// Products of a prompt, a part of stack.c: many positions at once, so weights are read seldom and multiplied often.
//
// Positions are taken 16 at a time, transposed so that a vector holds one number of each of them. Here the 64 products of
// a group are summed as whole numbers, exactly, and then multiplied by their scales: groups come in one order. With
// AMX a group of 16 outputs and 16 positions is one instruction.

#pragma once
#if defined(__AMX_INT8__)
#include <sys/syscall.h>
#include <unistd.h>
#define REQUEST_PERMISSION 0x1023 // arch_prctl(2)
#define TILE_DATA 18
#endif
#if defined(HAS_AVX512)
#include "transpose.h"
#endif

#define PROMPT 16 // positions of a row: from so many on
#define TILE 16   // positions, and outputs, that are taken together
#define MAX_TILES 4 // of positions, that meet a weight while it is at hand

#if defined(__AVX2__) && !defined(HAS_AVX512)
#define PAIRS_OF_WORDS // bytes would have to be made positive first: for weights in 8 bits, codes are kept as 16
#endif

// A group of 16 positions. Room for as many QuantBlocks has room for these.
typedef union {
  struct {
    int8_t codes[GROUP / 4][TILE][4];
    int32_t start[TILE]; // minus zero times the codes
  };
#if defined(PAIRS_OF_WORDS)
  int16_t words[GROUP / 2][TILE][2];
#endif
} Transposed;
_Static_assert(sizeof(Transposed) <= TILE * sizeof(QuantBlock), "a prompt has no room");

static inline Transposed *transposed_at(Quantized x, int64_t tile, int n_groups, int g) {
  return (Transposed *)x.blocks + tile * n_groups + g;
}

static inline float *scales_at(Quantized x, int64_t tile, int n_groups, int g) {
  return x.scales + (tile * n_groups + g) * TILE;
}

static void put_transposed(const float *x, int zero, int64_t i, int n_groups, int g, Quantized to) {
  int8_t codes[GROUP];
  Transposed *there = transposed_at(to, i / TILE, n_groups, g);
  const int lane = i % TILE;
  codes_of(x, codes, scales_at(to, i / TILE, n_groups, g) + lane);
#if defined(PAIRS_OF_WORDS)
  if (zero == 128) {
    for (int k = 0; k < GROUP; k++) there->words[k / 2][lane][k % 2] = codes[k];
    return;
  }
#endif
  for (int k = 0; k < GROUP / 4; k++) memcpy(there->codes[k][lane], codes + 4 * k, 4);
  int32_t sum = 0;
  for (int j = 0; j < GROUP; j++) sum += codes[j];
  there->start[lane] = -zero * sum;
}

static void prepare_tiles(void) {
#if defined(__AMX_INT8__)
  struct {
    uint8_t palette, start, unused[14];
    uint16_t n_bytes[16];
    uint8_t n_rows[16];
  } __attribute__((packed)) config = {.palette = 1};
  for (int i = 0; i < 8; i++) config.n_bytes[i] = 64, config.n_rows[i] = TILE;
  _tile_loadconfig(&config);
#endif
}

static void release_tiles(void) {
#if defined(__AMX_INT8__)
  _tile_release();
#endif
}

// Asks memory for a group of the next outputs' weights: rows are long, so that nobody guesses which come next.
static inline void ask_for(const Linear *l, int first, int g) {
  const int64_t row = (int64_t)l->n_in * l->n_bits / 8;
  const uint8_t *from = l->codes + first * row + g * GROUP * l->n_bits / 8;
  for (int o = 0; o < TILE; o++) __builtin_prefetch(from + o * row); // beyond the last it does no harm
}

// A group of 16 outputs' weights as bytes; returns where they are and sets how far apart.
static inline const uint8_t *bytes_of(const Linear *l, int first, int n_outs, int g, uint8_t (*space)[GROUP],
                                      int64_t *stride) {
  const int64_t row = (int64_t)l->n_in * l->n_bits / 8;
  const uint8_t *from = l->codes + first * row + g * GROUP * l->n_bits / 8;
  if (l->n_bits == 8 && n_outs == TILE) {
    *stride = row;
    return from;
  }
  for (int o = 0; o < n_outs; o++, from += row) {
    if (l->n_bits == 8) {
      memcpy(space[o], from, GROUP);
      continue;
    }
    for (int i = 0; i < GROUP / 2; i++) space[o][i] = from[i] & 15;
    for (int i = 0; i < GROUP / 2; i++) space[o][i + GROUP / 2] = from[i] >> 4;
  }
  *stride = GROUP;
  return space[0];
}

#if defined(PAIRS_OF_WORDS)
#define OUTS 4 // outputs whose sums stay in registers
#define EACH_OUT _Pragma("GCC unroll 4")
// Compilers like to multiply for all outputs first and then to add: that takes more registers than there are.
#define KEEP_ORDER(pair) __asm__("" : "+x"(pair[0]), "+x"(pair[1]))

static inline __m256i load_256(const void *from) { return _mm256_loadu_si256(from); }

// `dot_group` for weights in 8 bits
static inline void dot_words(const uint8_t *weights, int64_t stride, const Transposed *x, int apart, int n_tiles,
                             int32_t (*dots)[TILE][TILE]) {
  int16_t words[TILE][GROUP] __attribute__((aligned(32)));
  for (int o = 0; o < TILE; o++)
    for (int i = 0; i < GROUP; i++) words[o][i] = (int16_t)(weights[o * stride + i] - 128);
  for (int t = 0; t < n_tiles; t++)
    for (int o = 0; o < TILE; o += OUTS) {
      __m256i sums[OUTS][2];
      EACH_OUT for (int i = 0; i < OUTS; i++) sums[i][0] = sums[i][1] = _mm256_setzero_si256();
      for (int k = 0; k < GROUP; k += 2) {
        const __m256i near = load_256(x[t * apart].words[k / 2][0]), far = load_256(x[t * apart].words[k / 2][TILE / 2]);
        EACH_OUT for (int i = 0; i < OUTS; i++) {
          int32_t two;
          memcpy(&two, words[o + i] + k, 4);
          const __m256i w = _mm256_set1_epi32(two);
          sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_madd_epi16(w, near));
          sums[i][1] = _mm256_add_epi32(sums[i][1], _mm256_madd_epi16(w, far));
          KEEP_ORDER(sums[i]);
        }
      }
      EACH_OUT for (int i = 0; i < OUTS; i++)
        for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)dots[t][o + i] + h, sums[i][h]);
    }
}

// `dot_group` for weights in 4 bits: sums of 16 products, at most 15 * 127 each, fit into 16 bits
static inline void dot_nibbles(const uint8_t *weights, int64_t stride, const Transposed *x, int apart, int n_tiles,
                               int32_t (*dots)[TILE][TILE]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int t = 0; t < n_tiles; t++)
    for (int o = 0; o < TILE; o += OUTS) {
      __m256i sums[OUTS][2];
      EACH_OUT for (int i = 0; i < OUTS; i++)
        for (int h = 0; h < 2; h++) sums[i][h] = load_256(x[t * apart].start + 8 * h);
      for (int k = 0; k < GROUP / 4; k += 8) {
        __m256i parts[OUTS][2];
        EACH_OUT for (int i = 0; i < OUTS; i++) parts[i][0] = parts[i][1] = _mm256_setzero_si256();
        for (int at = k; at < k + 8; at++) {
          const __m256i near = load_256(x[t * apart].codes[at][0]), far = load_256(x[t * apart].codes[at][TILE / 2]);
          EACH_OUT for (int i = 0; i < OUTS; i++) {
            int32_t four;
            memcpy(&four, weights + (o + i) * stride + 4 * at, 4);
            const __m256i w = _mm256_set1_epi32(four);
            parts[i][0] = _mm256_add_epi16(parts[i][0], _mm256_maddubs_epi16(w, near));
            parts[i][1] = _mm256_add_epi16(parts[i][1], _mm256_maddubs_epi16(w, far));
            KEEP_ORDER(parts[i]);
          }
        }
        EACH_OUT for (int i = 0; i < OUTS; i++)
          for (int h = 0; h < 2; h++) sums[i][h] = _mm256_add_epi32(sums[i][h], _mm256_madd_epi16(parts[i][h], ones));
      }
      EACH_OUT for (int i = 0; i < OUTS; i++)
        for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i *)dots[t][o + i] + h, sums[i][h]);
    }
}
#undef OUTS
#undef EACH_OUT
#undef KEEP_ORDER
#endif

// dots[t][o][r] = weights of output o, less `zero`, by codes of position r of tile t; tiles are `apart` from each other
static inline void dot_group(const uint8_t *weights, int64_t stride, int zero, const Transposed *x, int apart, int n_tiles,
                             int32_t (*dots)[TILE][TILE]) {
  (void)zero; // it is in x's start, where that is used
#if defined(__AMX_INT8__)
#define DOT(sums, right)                                             \
  if (sums < n_tiles) {                                              \
    _tile_loadd(sums, x[sums * apart].start, 0); /* for all outputs */ \
    _tile_loadd(right, x[sums * apart].codes, 64);                   \
    _tile_dpbusd(sums, 7, right);                                    \
  }
  _tile_loadd(7, weights, stride);
  DOT(0, 4)
  DOT(1, 5)
  DOT(2, 6)
  DOT(3, 4)
  _tile_stored(0, dots[0], 64);
  if (n_tiles > 1) _tile_stored(1, dots[1], 64);
  if (n_tiles > 2) _tile_stored(2, dots[2], 64);
  if (n_tiles > 3) _tile_stored(3, dots[3], 64);
#undef DOT
#elif defined(__AVX512VNNI__)
  for (int t = 0; t < n_tiles; t++)
    for (int o = 0; o < TILE; o += 4) {
      __m512i sums[4];
      for (int i = 0; i < 4; i++) sums[i] = _mm512_loadu_si512(x[t * apart].start);
      for (int k = 0; k < GROUP / 4; k++) {
        const __m512i codes = _mm512_loadu_si512(x[t * apart].codes[k]);
        for (int i = 0; i < 4; i++) {
          int32_t four;
          memcpy(&four, weights + (o + i) * stride + 4 * k, 4);
          sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi32(four), codes);
        }
      }
      for (int i = 0; i < 4; i++) _mm512_storeu_si512(dots[t][o + i], sums[i]);
    }
#elif defined(HAS_AVX512)
  for (int t = 0; t < n_tiles; t++)
    for (int o = 0; o < TILE; o += 4) {
      __m512i sums[4];
      for (int i = 0; i < 4; i++) sums[i] = _mm512_setzero_si512();
      for (int k = 0; k < GROUP / 4; k++) {
        const __m512i codes = _mm512_loadu_si512(x[t * apart].codes[k]);
        for (int i = 0; i < 4; i++) {
          int32_t four;
          memcpy(&four, weights + (o + i) * stride + 4 * k, 4);
          sums[i] = _mm512_add_epi32(sums[i], dot_fours(weights_of(_mm512_set1_epi32(four), zero), codes, x->start));
        }
      }
      for (int i = 0; i < 4; i++) _mm512_storeu_si512(dots[t][o + i], sums[i]);
    }
#elif defined(__AVX2__)
  if (zero == 128) dot_words(weights, stride, x, apart, n_tiles, dots);
  else dot_nibbles(weights, stride, x, apart, n_tiles, dots);
#elif defined(__ARM_FEATURE_DOTPROD)
  for (int t = 0; t < n_tiles; t++)
    for (int o = 0; o < TILE; o += 4) {
      int32x4_t sums[4][4];
      for (int i = 0; i < 16; i++) sums[i / 4][i % 4] = vdupq_n_s32(0);
      for (int k = 0; k < GROUP / 4; k++) {
        int8x16_t codes[4];
        for (int part = 0; part < 4; part++) codes[part] = vld1q_s8(x[t * apart].codes[k][4 * part]);
        for (int i = 0; i < 4; i++) {
          uint32_t four;
          memcpy(&four, weights + (o + i) * stride + 4 * k, 4);
          const int8x16_t w = weights_of(vreinterpretq_u8_u32(vdupq_n_u32(four)), zero);
          for (int part = 0; part < 4; part++) sums[i][part] = vdotq_s32(sums[i][part], w, codes[part]);
        }
      }
      for (int i = 0; i < 16; i++) vst1q_s32(dots[t][o + i / 4] + 4 * (i % 4), sums[i / 4][i % 4]);
    }
#else
  for (int t = 0; t < n_tiles; t++)
    for (int o = 0; o < TILE; o++) {
      memcpy(dots[t][o], x[t * apart].start, sizeof x->start);
      for (int k = 0; k < GROUP / 4; k++) {
        const uint8_t *w = weights + o * stride + 4 * k;
        for (int r = 0; r < TILE; r++)
          for (int j = 0; j < 4; j++) dots[t][o][r] += (int32_t)w[j] * x[t * apart].codes[k][r][j];
      }
    }
#endif
}

// sums[t][o][r] of up to 16 outputs from `first` on, for `n_tiles` tiles of positions from `tile` on
static inline void sum_prompt(const Linear *l, int first, int n_outs, Quantized x, int tile, int n_tiles,
                              float (*sums)[TILE][TILE]) {
  const int n_groups = l->n_in / GROUP;
  uint8_t space[TILE][GROUP] __attribute__((aligned(64)));
  int32_t dots[MAX_TILES][TILE][TILE] __attribute__((aligned(64)));
  memset(space, 0, sizeof space);
  memset(sums, 0, n_tiles * sizeof *sums);
  for (int g = 0; g < n_groups; g++) {
    int64_t stride;
    const uint8_t *weights = bytes_of(l, first, n_outs, g, space, &stride);
    if (tile == 0) ask_for(l, first + TILE, g);
    dot_group(weights, stride, zero_of(l), transposed_at(x, tile, n_groups, g), n_groups, n_tiles, dots);
    float scales[TILE] = {0};
    for (int o = 0; o < n_outs; o++) scales[o] = from_bf16(l->scales[(int64_t)(first + o) * n_groups + g]);
    for (int t = 0; t < n_tiles; t++) {
      const float *theirs = scales_at(x, tile + t, n_groups, g);
#if defined(HAS_AVX512)
      const __m512 factor = _mm512_loadu_ps(theirs);
#pragma GCC unroll 16
      for (int o = 0; o < TILE; o++) {
        const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[t][o]));
        const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(scales[o]), factor);
        _mm512_store_ps(sums[t][o], _mm512_fmadd_ps(dot, scale, _mm512_load_ps(sums[t][o])));
      }
#elif defined(__AVX2__) // left to itself, the compiler takes longer for these than for the products
      for (int o = 0; o < TILE; o++)
        for (int r = 0; r < TILE; r += 8) {
          const __m256 dot = _mm256_cvtepi32_ps(load_256(dots[t][o] + r));
          const __m256 scale = _mm256_mul_ps(_mm256_set1_ps(scales[o]), _mm256_loadu_ps(theirs + r));
          _mm256_store_ps(sums[t][o] + r, _mm256_fmadd_ps(dot, scale, _mm256_load_ps(sums[t][o] + r)));
        }
#else
      for (int o = 0; o < TILE; o++)
        for (int r = 0; r < TILE; r++) sums[t][o][r] += (float)dots[t][o][r] * (scales[o] * theirs[r]);
#endif
    }
  }
}

// Sums of one tile, with the bias, to `n_rows` rows that are `width` apart: set or added to
static inline void place_sums(const Linear *l, int first, int n_outs, float (*sums)[TILE], int n_rows, float *to,
                              int64_t width, int add) {
#if defined(HAS_AVX512)
  const __mmask16 here = (__mmask16)((1u << n_outs) - 1);
  const __m512 bias = l->bias ? _mm512_maskz_loadu_ps(here, l->bias + first) : _mm512_setzero_ps();
  __m512i rows[TILE];
  for (int o = 0; o < TILE; o++) rows[o] = _mm512_load_si512(sums[o]);
  transpose16(rows);
  for (int r = 0; r < n_rows; r++) {
    float *place = to + r * width;
    __m512 made = _mm512_add_ps(_mm512_castsi512_ps(rows[r]), bias);
    if (add) made = _mm512_add_ps(_mm512_maskz_loadu_ps(here, place), made);
    _mm512_mask_storeu_ps(place, here, made);
  }
#else
  for (int r = 0; r < n_rows; r++)
    for (int o = 0; o < n_outs; o++) {
      const float made = sums[o][r] + (l->bias ? l->bias[first + o] : 0);
      to[r * width + o] = add ? to[r * width + o] + made : made;
    }
#endif
}

// Outputs `first` to `end` for the n positions from `at` on, at most MAX_TILES tiles of them: rows are `width` apart.
static void dots_prompt(const Linear *l, int first, int end, Quantized x, int at, int n, float *to, int64_t width,
                        int add) {
  float sums[MAX_TILES][TILE][TILE] __attribute__((aligned(64)));
  const int n_tiles = (n + TILE - 1) / TILE;
  for (int o = first; o < end; o += TILE) {
    const int n_outs = end - o < TILE ? end - o : TILE;
    sum_prompt(l, o, n_outs, x, at / TILE, n_tiles, sums);
    for (int t = 0; t < n_tiles; t++) {
      const int n_rows = n - t * TILE < TILE ? n - t * TILE : TILE;
      place_sums(l, o, n_outs, sums[t], n_rows, to + t * TILE * width + o - first, width, add);
    }
  }
}

// to (n, n_out), set or added to; called by all threads together
static void multiply_prompt(const Linear *l, Quantized x, int n, float *to, int add) {
#pragma omp for schedule(dynamic, 1)
  for (int block = 0; block < (l->n_out + BLOCK - 1) / BLOCK; block++) {
    const int first = block * BLOCK, end = first + BLOCK < l->n_out ? first + BLOCK : l->n_out;
    for (int at = 0; at < n; at += MAX_TILES * TILE) {
      const int n_here = n - at < MAX_TILES * TILE ? n - at : MAX_TILES * TILE;
      dots_prompt(l, first, end, x, at, n_here, to + (int64_t)at * l->n_out + first, l->n_out, add);
    }
  }
}
