// Functions of single numbers, a part of stack.c: exp, silu and gelu. Where compilers leave them one by one, eight at a
// time, with the same operations in the same order, hence the same bits.

#pragma once

static inline float exp_fast(float x) { // relative error below 2e-7; x <= 0
  x = x < -87.0f ? -87.0f : x;
  float whole = rintf(x * 1.44269504f);
  float rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  sum = sum * rest + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * rest * rest + rest + 1.0f;
  int32_t power = ((int32_t)whole + 127) << 23;
  float scale;
  memcpy(&scale, &power, 4);
  return sum * scale;
}

static inline float silu(float x) { // x / (1 + exp(-x))
  float e = exp_fast(-fabsf(x));
  return x * (x < 0 ? e : 1) / (1 + e);
}

static inline float gelu(float x) { // 0.5 x (1 + tanh(y)), which is x / (1 + exp(-2 y))
  float y = 2 * 0.7978845608f * (x + 0.044715f * x * x * x), e = exp_fast(-fabsf(y));
  return x * (y < 0 ? e : 1) / (1 + e);
}

#if defined(ONLY_AVX2)
static inline __m256 exp_fast_8(__m256 x) {
  x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));
  const __m256 whole = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
  __m256 rest = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0.693359375f), x);
  rest = _mm256_fmadd_ps(whole, _mm256_set1_ps(2.12194440e-4f), rest);
  __m256 sum = _mm256_set1_ps(1.9875691500e-4f);
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.3981999507e-3f));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(8.3334519073e-3f));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(4.1665795894e-2f));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.6666665459e-1f));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(5.0000001201e-1f));
  sum = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(sum, rest), rest, rest), _mm256_set1_ps(1.0f));
  const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
  return _mm256_mul_ps(sum, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}

static inline __m256 over_1_plus_exp_8(__m256 x, __m256 y) { // x / (1 + exp(-y))
  const __m256 one = _mm256_set1_ps(1.0f), e = exp_fast_8(_mm256_or_ps(y, _mm256_set1_ps(-0.0f)));
  return _mm256_div_ps(_mm256_mul_ps(x, _mm256_blendv_ps(one, e, y)), _mm256_add_ps(one, e));
}

static inline __m256 silu_8(__m256 x) { return over_1_plus_exp_8(x, x); }

static inline __m256 gelu_8(__m256 x) {
  const __m256 square = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), x), x);
  return over_1_plus_exp_8(x, _mm256_mul_ps(_mm256_set1_ps(2 * 0.7978845608f), _mm256_fmadd_ps(square, x, x)));
}
#endif

// x becomes silu(x) * beside, or gelu(x)
static inline void activate(int has_gate, float *x, const float *beside, int n) {
  int i = 0;
#if defined(ONLY_AVX2)
  for (; i + 8 <= n; i += 8) {
    const __m256 given = _mm256_loadu_ps(x + i);
    _mm256_storeu_ps(x + i, has_gate ? _mm256_mul_ps(silu_8(given), _mm256_loadu_ps(beside + i)) : gelu_8(given));
  }
#endif
  for (; i < n; i++) x[i] = has_gate ? silu(x[i]) * beside[i] : gelu(x[i]);
}

// x becomes exp(x - most), most the largest of them
static inline void exp_of_differences(float *x, int n, float most) {
  int i = 0;
#if defined(ONLY_AVX2)
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, exp_fast_8(_mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(most))));
#endif
  for (; i < n; i++) x[i] = exp_fast(x[i] - most);
}

