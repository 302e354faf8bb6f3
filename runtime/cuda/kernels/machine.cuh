// Device intrinsics for the kernels: 16-bit floats, warp-level operations, tensor-core matrix multiplies and
// asynchronous copies. No other file in this folder uses PTX instructions, and none includes a CUDA header,
// so the sources compile with NVRTC alone. Without CUDA, emulator/cuda/machine.h replaces this file.
#pragma once

// bfloat16: the high 16 bits of an f32.
struct bf16 {
    unsigned short bits;
};

// IEEE half precision.
struct f16 {
    unsigned short bits;
};

__device__ __forceinline__ float to_f32(float x) { return x; }

__device__ __forceinline__ float to_f32(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ __forceinline__ float to_f32(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// Conversions round to nearest, ties to even.
__device__ __forceinline__ void from_f32(float& to, float x) { to = x; }

__device__ __forceinline__ void from_f32(bf16& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }

__device__ __forceinline__ void from_f32(f16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }

// Two packed 16-bit floats.
__device__ __forceinline__ unsigned pack_pair(bf16, float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ __forceinline__ unsigned pack_pair(f16, float low, float high) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Square root and quotient to within two units in the last place, without the branches of exact rounding.
__device__ __forceinline__ float sqrt_approx(float x) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float divide_approx(float x, float y) { return __fdividef(x, y); }

// Returns 2^x.
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ int lane() { return threadIdx.x & 31; }

// Returns the value of lane `from` (warp shuffle).
template <class X> __device__ __forceinline__ X shuffle(X x, int from) { return __shfl_sync(~0u, x, from); }

// Returns the value of the lane whose index differs in the bits of `mask` (butterfly shuffle).
template <class X> __device__ __forceinline__ X shuffle_xor(X x, int mask) { return __shfl_xor_sync(~0u, x, mask); }

// Synchronizes the warp, which makes its writes to shared memory visible.
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

// Synchronizes the block.
__device__ __forceinline__ void sync_block() { __syncthreads(); }

// Returns the dynamic shared memory of the block.
__device__ __forceinline__ unsigned char* dynamic_shared_memory() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return bytes;
}

__device__ __forceinline__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

// ldmatrix: loads four 8 × 8 matrices of 16-bit elements. Lane n passes the address of row n % 8 of matrix n
// / 8, and receives from each matrix two adjacent elements of row lane / 4: columns 2 · (lane % 4) and the
// next.
__device__ __forceinline__ void ldmatrix(unsigned (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Loads the matrices transposed.
__device__ __forceinline__ void ldmatrix_transposed(unsigned (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// mma: sums (16 × 8) += a (16 × 16) · b (16 × 8). Each lane holds columns 2 · (lane % 4) and the next of the
// sums, of rows lane / 4 (first two) and lane / 4 + 8 (last two).
__device__ __forceinline__ void mma(bf16, float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma(f16, float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Returns c plus the dot product of the four signed bytes of a with those of b.
__device__ __forceinline__ int dot4(int a, int b, int c) { return __dp4a(a, b, c); }

// Returns four bytes of the eight of a (0 to 3) and b (4 to 7), chosen by the nibbles of `selector`.
__device__ __forceinline__ unsigned permute_bytes(unsigned a, unsigned b, unsigned selector) {
    return __byte_perm(a, b, selector);
}

// mma of signed bytes: sums (16 × 8) += a (16 × 32) · b (32 × 8). A word holds four adjacent columns of a or rows of b:
// a[0] and a[2] those that begin at 4 · (lane % 4) and 16 later of row lane / 4, a[1] and a[3] of row lane / 4 + 8; b0
// and b1 likewise of column lane / 4. Sums as for 16-bit elements.
__device__ __forceinline__ void mma_bytes(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same with sums that begin with `start`.
__device__ __forceinline__ void mma_bytes_from(int start, int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}

// Two adjacent words, aligned to 8 bytes.
struct alignas(8) WordPair {
    unsigned low, high;
};

// Loads words that are read once and do not change: they bypass the L1 cache.
__device__ __forceinline__ WordPair load_streamed(const void* from) {
    WordPair words;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words.low), "=r"(words.high)
                 : "l"(__cvta_generic_to_global(from)));
    return words;
}

// The same for four words, aligned to 16 bytes.
struct alignas(16) WordQuad {
    unsigned words[4];
};

__device__ __forceinline__ WordQuad load_streamed_quad(const void* from) {
    WordQuad quad;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(quad.words[0]), "=r"(quad.words[1]), "=r"(quad.words[2]), "=r"(quad.words[3])
                 : "l"(__cvta_generic_to_global(from)));
    return quad;
}

// Starts an asynchronous copy of 16 bytes to shared memory; writes zeros if not `there`. Both addresses are
// aligned to 16.
__device__ __forceinline__ void cp_async(void* to, const void* from, bool there) {
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
}

// Commits the copies started since the last call as a group.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most LEFT of this thread's newest copy groups are pending.
template <int LEFT> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Adds to a counter in global memory, atomically on the whole device, and returns its previous value. A thread may poll
// a counter by adding zero if the block that it waits for is certainly resident.
__device__ __forceinline__ unsigned atomic_add(unsigned* counter, unsigned x) { return atomicAdd(counter, x); }

// Orders this thread's accesses to global memory, and those it has synchronized with, before its later ones, as seen
// by the whole device.
__device__ __forceinline__ void fence() { __threadfence(); }

// Defines a kernel with its own name and blocks of at most THREADS threads. A minimum of one block per
// multiprocessor keeps the compiler from spilling registers to raise the occupancy.
#define ENTRY(name, THREADS, parameters, body) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name parameters { body; }

// Defines a kernel with at least BLOCKS blocks resident per multiprocessor, which leaves each thread fewer
// registers.
#define ENTRY_WITH_BLOCKS(name, THREADS, BLOCKS, parameters, body) \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name parameters { body; }
