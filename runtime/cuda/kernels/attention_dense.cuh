// Shared by the kernels of dense attention: 16-bit floats, one key range per query, and scores that are dot
// products times a positive scale. Heads are multiples of 8 columns and aligned to 16 bytes. Steps are
// double-buffered: one is copied while the other is computed.
#pragma once

#include "attention.cuh"

// Blocks per multiprocessor, if shared memory allows: limits the registers accordingly.
#define DENSE_BLOCKS 3

// Keys or queries per step.
template <int SIZE> __device__ constexpr int dense_step() { return SIZE > 64 ? 32 : 64; }

// Copies rows of a head to a tile, zero-padded beyond `rows` and beyond the head's columns. Complete after
// cp_async_wait.
template <int SIZE, int ROWS, class T>
__device__ __forceinline__ void load_rows(T* tile, Heads<T> heads, long long first, int rows) {
    using P = TileConfig<T, SIZE>;
    constexpr int WIDE = vector_len<T>(), PACKS = SIZE / WIDE;
    const T* from = heads.data + first * heads.width;
#pragma unroll
    for (int i = 0; i < ROWS * PACKS / P::threads; i++) {
        int pack = i * P::threads + threadIdx.x, row = pack / PACKS, column = pack % PACKS * WIDE;
        bool there = row < rows && column < heads.size;
        cp_async(tile + row * P::stride + column, there ? from + row * heads.width + column : from, there);
    }
}

// Key ranges of some queries: the keys that all of them attend to, and those from the first to the last that
// any attends to.
struct VisibleRange {
    int all_first;
    int all_end;
    int any_first;
    int any_end;
};

__device__ __forceinline__ VisibleRange visible_range(int first, int end) { return {first, end, first < end ? first : 0x7fffffff, end}; }

__device__ __forceinline__ VisibleRange merge_ranges(const VisibleRange& a, const VisibleRange& b) {
    return {max(a.all_first, b.all_first), min(a.all_end, b.all_end), min(a.any_first, b.any_first),
            max(a.any_end, b.any_end)};
}

__device__ __forceinline__ VisibleRange warp_range(VisibleRange own) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) {
        VisibleRange other = {shuffle_xor(own.all_first, mask), shuffle_xor(own.all_end, mask), shuffle_xor(own.any_first, mask),
                       shuffle_xor(own.any_end, mask)};
        own = merge_ranges(own, other);
    }
    return own;
}

__device__ __forceinline__ bool all_visible(const VisibleRange& visible, int first, int end) {
    return visible.all_first <= first && end <= visible.all_end;
}

__device__ __forceinline__ bool any_visible(const VisibleRange& visible, int first, int end) {
    return visible.any_first < end && first < visible.any_end;
}

// Masks keys: sets the scores of keys outside a query's range to −infinity. Rows are queries, columns are
// keys from `first` on.
template <int STEP>
__device__ __forceinline__ void mask_keys(float (&scores)[STEP / 8][4], int first, const int (&begin)[2],
                                          const int (&end)[2]) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = first + n * 8 + lane() % 4 * 2 + i % 2;
            if (key < begin[i / 2] || key >= end[i / 2]) scores[n][i] = -infinity();
        }
    }
}

// Converts a query's log-sum-exp to base two. If the query attends to no key, all probabilities are zero,
// whatever the value.
__device__ __forceinline__ float to_base_two(float log_sum_exp) { return log_sum_exp == -infinity() ? 0 : log_sum_exp * LOG2_E; }
