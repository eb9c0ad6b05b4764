// Products of stack.c with drawn numbers, as one program for any processor: prints what came out, as bits.
//
// Sums of whole numbers are compared with a plain loop here, and printed sums of scaled ones with those of another
// processor by whoever runs this. PLANT_8 and PLANT_4 break the NEON code on purpose.

#include <stdio.h>
#include <stdlib.h>
#if defined(PLANT_8) || defined(PLANT_4)
#include <arm_neon.h>
#endif
#if defined(PLANT_8)
#define vsubq_u8(a, b) vaddq_u8(a, vdupq_n_u8(0 * vgetq_lane_u8(b, 0))) // weights keep their zero
#elif defined(PLANT_4)
#define vshrq_n_u8(a, n) vshrq_n_u8(a, n - 1) // halves of bytes are not where they were put
#endif
#include "stack.c"

static uint64_t state = 1;

static uint32_t draw(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33);
}

static float draw_float(void) { return (float)(int32_t)(draw() % 2001) / 1000.0f - 1.0f; }

static void *drawn_bytes(int64_t n) {
  uint8_t *bytes = malloc(n);
  for (int64_t i = 0; i < n; i++) bytes[i] = (uint8_t)draw();
  return bytes;
}

static float *drawn_floats(int64_t n, float scale) {
  float *floats = malloc(n * sizeof(float));
  for (int64_t i = 0; i < n; i++) floats[i] = draw_float() * scale;
  return floats;
}

static Linear drawn_linear(int n_out, int n_in, int n_bits, int whole) {
  uint16_t *scales = malloc((int64_t)n_out * n_in / GROUP * 2);
  for (int i = 0; i < n_out * n_in / GROUP; i++)
    scales[i] = whole ? 0x3f80 : to_bf16((0.5f + (float)(draw() % 1000) / 1000) / (n_bits == 8 ? 2000 : 125));
  return (Linear){drawn_bytes((int64_t)n_out * n_in * n_bits / 8), scales, NULL, n_out, n_in, n_bits};
}

static Quantized space_for(int n, int n_in) {
  const int rows = (n + TILE - 1) / TILE * TILE, n_groups = n_in / GROUP;
  return (Quantized){calloc((int64_t)rows * n_groups, sizeof(QuantBlock)), calloc((int64_t)rows * n_groups, 4)};
}

static int weight_of(const Linear *l, int o, int i) {
  const uint8_t *group = l->codes + ((int64_t)o * l->n_in + i / GROUP * GROUP) * l->n_bits / 8;
  const int at = i % GROUP;
  if (l->n_bits == 8) return group[at] - 128;
  return (at < GROUP / 2 ? group[at] & 15 : group[at - GROUP / 2] >> 4) - 8;
}

static uint64_t hash(const float *x, int64_t n) {
  uint64_t made = 14695981039346656037u;
  for (int64_t i = 0; i < 4 * n; i++) made = (made ^ ((const uint8_t *)x)[i]) * 1099511628211u;
  return made;
}

// Activations whose scale is 1, so that every sum is a whole number that a float holds exactly.
// `largest`: all are as large as they can be.
static int check_whole(int n_out, int n_in, int n_bits, int n, int largest) {
  Linear l = drawn_linear(n_out, n_in, n_bits, 1);
  if (largest) memset((void *)l.codes, 255, (int64_t)n_out * n_in * n_bits / 8);
  float *x = malloc((int64_t)n * n_in * 4), *step = malloc((int64_t)n * n_out * 4), *prompt = malloc((int64_t)n * n_out * 4);
  for (int i = 0; i < n * n_in; i++) x[i] = i % GROUP && !largest ? (float)(int)(draw() % 255) - 127 : 127;
  Quantized space = space_for(n, n_in), transposed = space_for(n, n_in);
  nightingale_multiply(&l, x, n, &space, step, 2);
  for (int i = 0; i < n * n_in / GROUP; i++)
    put_group(x + (int64_t)i * GROUP, zero_of(&l), 1, i / (n_in / GROUP), n_in / GROUP, i % (n_in / GROUP), transposed);
  prepare_tiles();
  multiply(&l, transposed, n, 1, prompt, 0);
  release_tiles();
  int n_wrong = 0;
  for (int r = 0; r < n; r++)
    for (int o = 0; o < n_out; o++) {
      int32_t sum = 0;
      for (int i = 0; i < n_in; i++) sum += weight_of(&l, o, i) * (int)x[(int64_t)r * n_in + i];
      n_wrong += step[r * n_out + o] != (float)sum;
      n_wrong += prompt[r * n_out + o] != (float)sum;
    }
  printf("%s %d bits, %d by %d, %d rows: %d wrong of %d\n", largest ? "largest" : "whole", n_bits, n_out, n_in, n, n_wrong, 2 * n * n_out);
  return n_wrong;
}

static void print_scaled(int n_out, int n_in, int n_bits, int n) {
  Linear l = drawn_linear(n_out, n_in, n_bits, 0);
  float *x = drawn_floats((int64_t)n * n_in, 3), *to = malloc((int64_t)n * n_out * 4);
  Quantized space = space_for(n, n_in);
  nightingale_multiply(&l, x, n, &space, to, 2);
  printf("scaled %d bits, %d by %d, %d rows: %016llx\n", n_bits, n_out, n_in, n,
         (unsigned long long)hash(to, (int64_t)n * n_out));
}

// A small stack: some positions as a prompt, then one; prints the numbers, because their last bits may differ.
static void print_stack(int n_bits, int has_gate) {
  enum { width = 2 * GROUP, n_heads = 2, d_ffn = 4 * GROUP, n_layers = 2, n_rows = 2, capacity = 64, n_prompt = 20 };
  Layer layers[n_layers];
  uint16_t *keys[n_layers], *values[n_layers];
  for (int i = 0; i < n_layers; i++) {
    layers[i] = (Layer){drawn_linear(3 * width, width, n_bits, 0), drawn_linear(width, width, n_bits, 0),
                        drawn_linear(has_gate ? 2 * d_ffn : d_ffn, width, n_bits, 0), drawn_linear(width, d_ffn, n_bits, 0),
                        drawn_floats(width, 1), NULL, drawn_floats(width, 1), NULL};
    keys[i] = calloc(n_rows * n_heads * capacity * GROUP, 2), values[i] = calloc(n_rows * n_heads * capacity * GROUP, 2);
  }
  Stack s = {layers, drawn_floats(width, 1), NULL, NULL, NULL, n_layers, width, n_heads, d_ffn, has_gate, 1e-5f};
  const int most = n_rows * (n_prompt + TILE);
  Workspace w = {drawn_floats((int64_t)most * width, 1), malloc((int64_t)most * 3 * width * 4),
                 malloc((int64_t)n_rows * n_heads * capacity * 4), space_for(most, width), space_for(most, d_ffn)};
  Slot slot = {{keys, values, capacity, 0}, {0}, n_rows};
  nightingale_read(&s, &slot, 1, n_prompt, &w, 2);
  for (int i = 0; i < n_rows * width; i++) w.x[i] = draw_float();
  slot.cache.length = n_prompt;
  nightingale_read(&s, &slot, 1, 1, &w, 2);
  printf("stack %d bits, gate %d:", n_bits, has_gate);
  for (int i = 0; i < n_rows * width; i += 7) printf(" %.6f", (double)w.x[i]);
  printf("\n");
}

int main(void) {
  if (!nightingale_runs_here()) {
    printf("not for this processor\n");
    return 3;
  }
  int n_wrong = 0;
  const int sizes[][2] = {{64, 64}, {96, 192}, {35, 512}, {36, 1024}};
  for (int size = 0; size < 4; size++)
    for (int n_bits = 8; n_bits >= 4; n_bits -= 4)
      for (int n = 1; n <= 18; n += n < 6 ? 1 : 11) {
        n_wrong += check_whole(sizes[size][0], sizes[size][1], n_bits, n, 0);
        print_scaled(sizes[size][0], sizes[size][1], n_bits, n);
      }
  for (int n_bits = 8; n_bits >= 4; n_bits -= 4) n_wrong += check_whole(36, 192, n_bits, 17, 1);
  for (int n_bits = 8; n_bits >= 4; n_bits -= 4)
    for (int has_gate = 0; has_gate < 2; has_gate++) print_stack(n_bits, has_gate);
  return n_wrong ? 1 : 0;
}
