// The layout of keys and values in blocks of the KV cache: kernels/src/ops/attention/mod.rs.
#pragma once

#include "exact.cuh"

// Positions of a block; keys that are interleaved; positions that share a softmax maximum.
#define KV_BLOCK 64
#define KV_PANEL 16
#define KV_CHUNK 256

enum class KvType { F32, F16, Int8, Int14 };

// A layer's keys and values: head after head, keys before values, in the blocks of a pool.
struct KvLayer {
    unsigned* pool;
    long long block_words;
    // Words from the start of a block to the layer, and words of the keys (and of the values) of one head.
    int offset, head_words;
};

__device__ __forceinline__ unsigned* kv_keys(const KvLayer& layer, int block, int head) {
    return layer.pool + block * layer.block_words + layer.offset + 2 * (long long)head * layer.head_words;
}

// The columns of a head in the cache.
__device__ __forceinline__ int padded_columns(int head_size) { return (head_size + 15) / 16 * 16; }

// The largest power of two up to 128 that divides the columns: the width of the rotation of int14 keys.
__device__ __forceinline__ int rotation_width(int columns) { return min(columns & -columns, 128); }

// The index of an element of a key or value in units of its type; of its (high) digit with integers.
__device__ __forceinline__ int key_element(KvType type, int columns, int slot, int column) {
    int panel = slot / KV_PANEL * KV_PANEL * columns;
    if (type == KvType::Int8 || type == KvType::Int14) return panel + (column / 4 * KV_PANEL + slot % KV_PANEL) * 4 + column % 4;
    return panel + column * KV_PANEL + slot % KV_PANEL;
}

__device__ __forceinline__ int value_element(KvType type, int columns, int slot, int column) {
    if (type == KvType::Int8 || type == KvType::Int14) return column / 16 * 16 * KV_BLOCK + (slot / 4 * 16 + column % 16) * 4 + slot % 4;
    return slot * columns + column;
}

// Rotates blocks of `width` of the `columns` elements in shared memory by the Hadamard transform. Called by all threads
// of a block; begins and ends with a barrier.
__device__ __forceinline__ void rotate_in_shared(float* row, int columns, int width) {
    for (int apart = 1; apart < width; apart *= 2) {
        sync_block();
        for (int i = threadIdx.x; i < columns / 2; i += blockDim.x) {
            int low = i / apart * 2 * apart + i % apart;
            float a = row[low], b = row[low + apart];
            row[low] = a + b;
            row[low + apart] = a - b;
        }
    }
    sync_block();
}

// The scale of integers that represent a row, and its inverse, which is zero if all are zero; NaN and zero if an element
// is not finite. All lanes of a warp compute it from `columns` elements.
__device__ __forceinline__ IntegerScale row_integer_scale(const float* row, int columns, float code) {
    float largest = 0.0f;
    int bad = 0;
    for (int i = lane(); i < columns; i += LANES) {
        bad |= !isfinite(row[i]);
        largest = larger(absolute(row[i]), largest);
    }
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) bad |= shuffle_xor(bad, mask);
    largest = warp_larger(largest);
    if (bad) return {__uint_as_float(0x7fc00000), 0.0f};
    return integer_scale(largest, code);
}

__device__ __forceinline__ IntegerScale larger_scale(IntegerScale a, IntegerScale b) { return b.scale > a.scale ? b : a; }

// The same for a rotated key or query of an int14 cache, whose norm is limited too.
__device__ __forceinline__ IntegerScale rotated_integer_scale(const float* row, int columns) {
    IntegerScale by_largest = row_integer_scale(row, columns, 8127.0f);
    float squares = 0.0f;
    for (int i = lane() % 16; i < columns; i += 16) squares = squares + row[i] * row[i];
    squares = tree_sum(squares);
    bool bad = !(by_largest.scale == by_largest.scale);
    IntegerScale scale = {0.0f, 0.0f};
    if (!(squares < 1.17549435e-38f)) scale = larger_scale(by_largest, integer_scale(sqrtf(squares), 46000.0f));
    if (bad || !isfinite(scale.scale)) return {__uint_as_float(0x7fc00000), 0.0f};
    return scale;
}
