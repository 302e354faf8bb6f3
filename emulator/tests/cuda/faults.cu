// Correct kernels, and incorrect kernels that a real GPU may happen to tolerate.
#include <machine.h>

// Sums each block's numbers through shared memory.
ENTRY(sum, 64, (const float* x, float* out), {
    float* shared = (float*)dynamic_shared_memory();
    shared[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
    sync_block();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        sync_block();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = shared[0];
})

// Sums neighbors without a barrier.
ENTRY(missing_barrier, 64, (const float* x, float* out), {
    float* shared = (float*)dynamic_shared_memory();
    shared[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = shared[threadIdx.x ^ 33];
})

// Adds to shared memory that each block finds as the last one left it.
ENTRY(uninitialized, 64, (float* out), {
    __shared__ float sum;
    if (threadIdx.x == 0) sum += 1;
    sync_block();
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
})

// Reads the last float of shared memory, and `beyond` more.
ENTRY(beyond_shared_memory, 64, (float* out, int floats, int beyond), {
    float* shared = (float*)dynamic_shared_memory();
    for (int i = (int)threadIdx.x; i < floats; i += 64) shared[i] = 1;
    sync_block();
    out[threadIdx.x] = shared[floats - 1 + beyond];
})

// Half of a warp waits at another barrier.
ENTRY(divergent_barriers, 64, (float* out), {
    float x = threadIdx.x % 2 == 0 ? shuffle_xor(1.0f, 1) : shuffle(2.0f, 1);
    out[threadIdx.x] = x;
})

// Some threads wait for others that have retransposed.
ENTRY(early_return, 64, (float* out), {
    if (threadIdx.x % 2 == 0) return;
    sync_warp();
    out[threadIdx.x] = 1;
})

// Asynchronous copies without a wait.
ENTRY(missing_wait, 64, (const float* x, float* out), {
    float* shared = (float*)dynamic_shared_memory();
    cp_async(shared + threadIdx.x * 4, x + threadIdx.x * 4, true);
    cp_async_commit();
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = shared[threadIdx.x * 4 + i];
})

// Sums the columns of tiles of 4 × 64 that are copied while others are read. With one tile of shared memory, the next
// one overwrites the tile that is read.
template <int TILES> inline void sum_of_tiles(const float* x, float* out, int steps) {
    float* shared = (float*)dynamic_shared_memory();
    auto start = [&](int step) {
        unsigned i = threadIdx.x * 4;
        if (step < steps) cp_async(shared + step % TILES * 256 + i, x + step * 256 + i, true);
        cp_async_commit();
    };
    float sum = 0;
    start(0);
    for (int step = 0; step < steps; step++) {
        cp_async_wait<0>();
        sync_block();
        start(step + 1);
        for (int row = 0; row < 4; row++) sum += shared[step % TILES * 256 + row * 64 + 63 - threadIdx.x];
        if (TILES == 1) sync_block();
    }
    out[threadIdx.x] = sum;
}

ENTRY(sum_tiles, 64, (const float* x, float* out, int steps), sum_of_tiles<2>(x, out, steps))
ENTRY(sum_tiles_in_use, 64, (const float* x, float* out, int steps), sum_of_tiles<1>(x, out, steps))

// Sums all numbers: the last block to finish adds the sums of all blocks, in order.
ENTRY(sum_of_blocks, 64, (const float* x, float* sums, unsigned* counter, float* out), {
    __shared__ float parts[2];
    __shared__ bool is_last;
    float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (lane() == 0) parts[threadIdx.x / 32] = sum;
    sync_block();
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = parts[0] + parts[1];
        fence();
        is_last = atomic_add(counter, 1) == gridDim.x - 1;
        fence();
    }
    sync_block();
    if (!is_last || threadIdx.x > 0) return;
    float all = 0;
    for (unsigned i = 0; i < gridDim.x; i++) all += sums[i];
    out[0] = all;
})

// Each block waits for the one before it, and multiplies and adds its index.
ENTRY(relay, 64, (float* out, unsigned* counter), {
    __shared__ unsigned own;
    if (threadIdx.x == 0) own = blockIdx.x;
    sync_block();
    if (threadIdx.x > 0) return;
    while (atomic_add(counter, 0) != own) {}
    fence();
    out[0] = out[0] * 2 + (float)own;
    fence();
    atomic_add(counter, 1);
})

// Reverses the numbers of each warp through static shared memory. A shuffle orders no accesses.
template <class Sync> inline void reverse_warp(const float* x, float* out, Sync sync) {
    __shared__ float numbers[64];
    numbers[threadIdx.x] = x[threadIdx.x];
    sync();
    out[threadIdx.x] = numbers[threadIdx.x ^ 31];
}

ENTRY(reverse_warps, 64, (const float* x, float* out), reverse_warp(x, out, [] { sync_warp(); }))
ENTRY(reverse_warps_by_shuffles, 64, (const float* x, float* out), reverse_warp(x, out, [] { shuffle(0, 0); }))

// Thread 0 overwrites what both warps have read, after a barrier of its own warp only.
ENTRY(missing_barrier_after_reads, 64, (const float* x, float* out), {
    __shared__ float first;
    if (threadIdx.x == 0) first = x[0];
    sync_block();
    out[threadIdx.x] = first;
    sync_warp();
    if (threadIdx.x == 0) first = x[1];
})

// Returns while a copy is pending.
ENTRY(pending_copy, 64, (const float* x), {
    float* shared = (float*)dynamic_shared_memory();
    cp_async(shared + threadIdx.x * 4, x + threadIdx.x * 4, true);
})

// Copies pairs of floats.
struct alignas(8) Pair {
    float numbers[2];
};

ENTRY(copy_pairs, 64, (const float* x, float* out), ((Pair*)out)[threadIdx.x] = ((const Pair*)x)[threadIdx.x])

// Writes out of bounds for a large index.
ENTRY(out_of_bounds, 64, (float* out, int place), { out[place] = 1; })

// Converts every number to 16 bits and back.
ENTRY(round_trip, 64, (const float* x, float* brain, float* half), {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    bf16 b;
    f16 h;
    from_f32(b, x[i]);
    from_f32(h, x[i]);
    brain[i] = to_f32(b);
    half[i] = to_f32(h);
})

// Multiplies 16 × 16 by 16 × 8, in the layout of the mma instructions.
ENTRY(matmul, 32, (const float* a, const float* b, float* out), {
    f16* of_a = (f16*)dynamic_shared_memory();
    f16* of_b = of_a + 16 * 16;
    for (int i = lane(); i < 256; i += 32) from_f32(of_a[i], a[i]);
    for (int i = lane(); i < 256; i += 32) from_f32(of_b[i], i % 16 < 8 ? b[i / 16 * 8 + i % 16] : 0);
    sync_warp();
    unsigned parts[4];
    unsigned transposed[4];
    float sums[4] = {};
    int row = lane() % 8;
    int which = lane() / 8;
    ldmatrix(parts, of_a + (row + which % 2 * 8) * 16 + which / 2 * 8);
    ldmatrix_transposed(transposed, of_b + (row + which % 2 * 8) * 16 + which / 2 * 8);
    mma(f16(), sums, parts, transposed[0], transposed[1]);
    for (int i = 0; i < 4; i++) out[(lane() / 4 + i / 2 * 8) * 8 + lane() % 4 * 2 + i % 2] = sums[i];
})
