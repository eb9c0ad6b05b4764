// What stack.c takes of macOS's header, so that its compilation for macOS can be tried without Apple's headers.
#pragma once
#define INFINITY __builtin_inff()
float fabsf(float);
float fmaxf(float, float);
float rintf(float);
float sqrtf(float);
