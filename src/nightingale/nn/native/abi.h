// How a library tells which structures it was compiled with, so that a stale one is refused instead of trusted.
//
// `nightingale_layout` returns the version, the number of structures, and for each of them its size and where its last
// field begins; nn/native/__init__.py compares them with its own.

#pragma once
#include <stddef.h>
#include <stdint.h>

#define ABI_VERSION 1 // count up when arguments or meanings change and sizes do not
#define LAYOUT(type, last) sizeof(type), offsetof(type, last)
