// Correct kernels, and incorrect kernels that a real GPU may happen to tolerate.
#include <machine.h>

// Sums each block's numbers through shared memory.
ENTRY(sum, 64, (const float* x, float* out), {
    float* shared = (float*)shared_bytes();
    shared[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    meet();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        meet();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = shared[0];
})

// Sums neighbors without a barrier.
ENTRY(too_early, 64, (const float* x, float* out), {
    float* shared = (float*)shared_bytes();
    shared[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = shared[threadIdx.x ^ 33];
})

// Half of a warp waits at another barrier.
ENTRY(parted, 64, (float* out), {
    float x = threadIdx.x % 2 == 0 ? across(1.0f, 1) : from_lane(2.0f, 1);
    out[threadIdx.x] = x;
})

// Some threads wait for others that have returned.
ENTRY(left_alone, 64, (float* out), {
    if (threadIdx.x % 2 == 0) return;
    meet_warp();
    out[threadIdx.x] = 1;
})

// Asynchronous copies without a wait.
ENTRY(not_copied, 64, (const float* x, float* out), {
    float* shared = (float*)shared_bytes();
    begin_copy(shared + threadIdx.x * 4, x + threadIdx.x * 4, true);
    close_copies();
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = shared[threadIdx.x * 4 + i];
})

ENTRY(beyond, 64, (float* out, int place), { out[place] = 1; })

// Converts every number to 16 bits and back.
ENTRY(round_trip, 64, (const float* x, float* brain, float* half), {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    bf16 b;
    f16 h;
    set(b, x[i]);
    set(h, x[i]);
    brain[i] = number(b);
    half[i] = number(h);
})

// Multiplies 16 × 16 by 16 × 8, in the layout of the mma instructions.
ENTRY(product, 32, (const float* a, const float* b, float* out), {
    f16* of_a = (f16*)shared_bytes();
    f16* of_b = of_a + 16 * 16;
    for (int i = lane(); i < 256; i += 32) set(of_a[i], a[i]);
    for (int i = lane(); i < 256; i += 32) set(of_b[i], i % 16 < 8 ? b[i / 16 * 8 + i % 16] : 0);
    meet_warp();
    unsigned parts[4];
    unsigned turned[4];
    float sums[4] = {};
    int row = lane() % 8;
    int which = lane() / 8;
    read_matrices(parts, of_a + (row + which % 2 * 8) * 16 + which / 2 * 8);
    read_turned_matrices(turned, of_b + (row + which % 2 * 8) * 16 + which / 2 * 8);
    multiply_add(f16(), sums, parts, turned[0], turned[1]);
    for (int i = 0; i < 4; i++) out[(lane() / 4 + i / 2 * 8) * 8 + lane() % 4 * 2 + i % 2] = sums[i];
})
