// Found by the compiler before its own <immintrin.h> when a kernel is compiled for the tests: the same C source, but
// AMX, AVX512_BF16 and AVX512_VNNI instructions are plain C, and where the processor has no AVX-512 (or with
// -DEMULATE_AVX512) the vectors are as well.
//
// -DEMULATE_VNNI compiles stack.c as for a processor with VNNI, -DEMULATE_AMX as for one with AMX and VNNI,
// -DEMULATE_BW as for one with AVX-512 without VNNI.

#pragma once
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(EMULATE_AVX512)
#include_next <immintrin.h>
#else
#include "avx512_emulation.h"
#endif
#include "amx_emulation.h"

#undef __AVX512VNNI__
#undef __AMX_INT8__
#if defined(EMULATE_VNNI) || defined(EMULATE_AMX)
#define __AVX512VNNI__ 1
#endif
#if defined(EMULATE_AMX)
#define __AMX_INT8__ 1
#endif
#if defined(EMULATE_BW) && !defined(__AVX512BW__)
#define __AVX512BW__ 1
#endif

#if !defined(__x86_64__) // nightingale_runs_here() is compiled there as well, and says no
#include <sys/syscall.h>
#define __builtin_cpu_supports(feature) 0
#ifndef SYS_arch_prctl
#define SYS_arch_prctl (-1)
#endif
#endif
