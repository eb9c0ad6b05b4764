// Whether this processor has the vector instructions that a library was compiled for.

#pragma once
#if defined(__ARM_FEATURE_DOTPROD) && defined(__linux__)
#include <sys/auxv.h>
#endif

static inline int has_vector_instructions(void) {
#if defined(__AVX512VNNI__)
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX512BW__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined(__ARM_FEATURE_DOTPROD) && defined(__linux__)
  return (getauxval(AT_HWCAP) & (1 << 20)) != 0; // HWCAP_ASIMDDP
#else // every Apple Silicon has them
  return 1;
#endif
}
