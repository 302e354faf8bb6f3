// Helpers shared by all kernels. Every kernel is deterministic: it produces the same bits for the same input
// on every device. Sums over several threads are accumulated in an order fixed by the shapes, and never with
// atomics.
#pragma once

#ifdef __CUDACC__
#include "machine.cuh"
#else
#include <machine.h>
#endif

#define LANES 32

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000); }

// An instantiation for each element type: BODY(type, name suffix).
#define FOR_EACH_TYPE(BODY) BODY(float, f32) BODY(bf16, bf16) BODY(f16, f16)

// Adjacent elements that are loaded and stored together.
template <class T, int COUNT> struct alignas(COUNT * sizeof(T)) Pack {
    T data[COUNT];
};

// Elements per 16 bytes.
template <class T> __device__ constexpr int vector_len() { return 16 / (int)sizeof(T); }

template <int COUNT, class T> __device__ __forceinline__ void read(float (&to)[COUNT], const T* from) {
    Pack<T, COUNT> pack = *reinterpret_cast<const Pack<T, COUNT>*>(from);
#pragma unroll
    for (int i = 0; i < COUNT; i++) to[i] = to_f32(pack.data[i]);
}

// Loads floats from an address aligned to 16 bytes; if COUNT is not a multiple of four, any address.
template <int COUNT> __device__ __forceinline__ void read_floats(float (&to)[COUNT], const float* from) {
    constexpr int STEP = COUNT % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int i = 0; i < COUNT; i += STEP) {
        Pack<float, STEP> pack = *reinterpret_cast<const Pack<float, STEP>*>(from + i);
#pragma unroll
        for (int j = 0; j < STEP; j++) to[i + j] = pack.data[j];
    }
}

// Stores floats; the counterpart of read_floats.
template <int COUNT> __device__ __forceinline__ void write_floats(float* to, const float (&from)[COUNT]) {
    constexpr int STEP = COUNT % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int i = 0; i < COUNT; i += STEP) {
        Pack<float, STEP> pack;
#pragma unroll
        for (int j = 0; j < STEP; j++) pack.data[j] = from[i + j];
        *reinterpret_cast<Pack<float, STEP>*>(to + i) = pack;
    }
}

template <int COUNT, class T> __device__ __forceinline__ void write(T* to, const float (&from)[COUNT]) {
    Pack<T, COUNT> pack;
#pragma unroll
    for (int i = 0; i < COUNT; i++) from_f32(pack.data[i], from[i]);
    *reinterpret_cast<Pack<T, COUNT>*>(to) = pack;
}

// Stores, or accumulates if `add`.
template <int COUNT, class T> __device__ __forceinline__ void store_or_accumulate(T* to, const float (&from)[COUNT], bool add) {
    float sums[COUNT];
    if (add) read<COUNT>(sums, to);
#pragma unroll
    for (int i = 0; i < COUNT; i++) sums[i] = add ? sums[i] + from[i] : from[i];
    write<COUNT>(to, sums);
}

template <class T> __device__ __forceinline__ void store_or_accumulate(T& to, float from, bool add) {
    from_f32(to, add ? to_f32(to) + from : from);
}

// Returns whether all addresses at multiples of `step` elements from this one can be accessed 16 bytes at a
// time.
template <class T> __device__ __forceinline__ bool is_aligned(const T* place, long long step) {
    return (unsigned long long)place % 16 == 0 && step % vector_len<T>() == 0;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
}

__device__ __forceinline__ int warp() { return threadIdx.x / LANES; }
__device__ __forceinline__ int warps() { return blockDim.x / LANES; }

// Block-wide reduction: returns the sum to every thread. `parts` has room for one value per warp, and may be
// reused after the next __syncthreads().
template <class X> __device__ __forceinline__ X block_sum(X x, X* parts) {
    x = warp_sum(x);
    if (lane() == 0) parts[warp()] = x;
    sync_block();
    X sum = 0;
    for (int i = 0; i < warps(); i++) sum += parts[i];
    sync_block();
    return sum;
}

// Grid-stride loop over `count` elements, 16 bytes at a time if `aligned`, then the rest one by one: calls
// work(index, number of elements as a type).
template <int COUNT> struct IntConstant {
    static constexpr int value = COUNT;
};

template <class T, class Work>
__device__ __forceinline__ void for_each_element(long long count, bool aligned, Work work) {
    constexpr int WIDE = vector_len<T>();
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long step = gridDim.x * (long long)blockDim.x;
    long long packed = aligned ? count / WIDE : 0;
    for (long long i = first; i < packed; i += step) work(i * WIDE, IntConstant<WIDE>());
    for (long long i = packed * WIDE + first; i < count; i += step) work(i, IntConstant<1>());
}

// Grid-stride loop over the elements of a matrix: calls work(row, column, number of elements as a type). Rows
// are distributed along gridDim.y, columns along gridDim.x.
template <class T, class Work>
__device__ __forceinline__ void for_each_element_2d(int rows, int columns, bool aligned, Work work) {
    constexpr int WIDE = vector_len<T>();
    int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    int packed = aligned ? columns / WIDE : 0;
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        for (int i = first; i < packed; i += step) work(row, i * WIDE, IntConstant<WIDE>());
        for (int i = packed * WIDE + first; i < columns; i += step) work(row, i, IntConstant<1>());
    }
}
