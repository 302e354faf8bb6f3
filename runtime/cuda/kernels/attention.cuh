// What forward and backward attention share: tiles in shared memory, their matrix products, and the attention
// mask.
//
// Sequences are concatenated without padding: the host lists tiles, each within one sequence. A warp owns 16
// rows of a tile of WIDTH columns; with the fragment layout of mma, each lane holds columns 2 ·
// (lane % 4) and the next of every eight, of rows lane / 4 and lane / 4 + 8.
#pragma once

#include "common.cuh"

// Rows per warp.
#define OWN 16

// Head sizes are rounded up to the next of these; a block owns `tile` rows and iterates over the other
// operand `step` rows at a time.
template <class T, int SIZE> struct TileConfig {
    static constexpr int tile = sizeof(T) == 4 && SIZE > 128 ? 32 : 64;
    static constexpr int threads = tile / OWN * LANES;
    // Rows are padded by 16 bytes, so that eight of them lie in different banks.
    static constexpr int stride = SIZE + vector_len<T>();
    // On some devices, a block is limited to 99 KiB of shared memory.
    static constexpr bool floats = sizeof(T) == 4;
    static constexpr int step = SIZE > 128 ? (floats ? 16 : 32) : floats && SIZE > 64 ? 32 : 64;
    // The backward kernel for keys holds two sets of accumulators.
    static constexpr int query_step = SIZE > 128 ? (floats ? 16 : 32) : SIZE > 64 ? 32 : 64;
};

// A matrix of adjacent heads: the columns of one head, of all rows.
template <class T> struct Heads {
    const T* data;
    int width;
    int size;
};

// Copies rows of a head to a tile, zero-padded beyond `rows` and beyond the head's columns. Complete after
// cp_async_wait.
template <int SIZE, int ROWS, class T>
__device__ __forceinline__ void load_tile(T* tile, Heads<T> heads, long long first, int rows) {
    constexpr int WIDE = vector_len<T>(), STRIDE = TileConfig<T, SIZE>::stride;
    const T* from = heads.data + first * heads.width;
    if (is_aligned(heads.data, heads.width) && heads.size % WIDE == 0) {
        for (int i = threadIdx.x; i < ROWS * (SIZE / WIDE); i += blockDim.x) {
            int row = i / (SIZE / WIDE), column = i % (SIZE / WIDE) * WIDE;
            bool there = row < rows && column < heads.size;
            cp_async(tile + row * STRIDE + column, there ? from + (long long)row * heads.width + column : from, there);
        }
    } else {
        for (int i = threadIdx.x; i < ROWS * SIZE; i += blockDim.x) {
            int row = i / SIZE, column = i % SIZE;
            T x;
            from_f32(x, 0);
            if (row < rows && column < heads.size) x = from[(long long)row * heads.width + column];
            tile[row * STRIDE + column] = x;
        }
    }
}

template <int SIZE, int WIDTH, class T>
__device__ __forceinline__ void product_16bit(float (&sums)[WIDTH / 8][4], const T* a, const T* b) {
    constexpr int STRIDE = TileConfig<T, SIZE>::stride;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0;
    }
    int row = lane() % 8, which = lane() / 8;
#pragma unroll
    for (int k = 0; k < SIZE; k += 16) {
        unsigned of_a[4], of_b[4];
        ldmatrix(of_a, a + (row + which % 2 * 8) * STRIDE + k + which / 2 * 8);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            ldmatrix(of_b, b + (n * 8 + which / 2 * 8 + row) * STRIDE + k + which % 2 * 8);
            mma(T(), sums[n], of_a, of_b[0], of_b[1]);
            mma(T(), sums[n + 1], of_a, of_b[2], of_b[3]);
        }
    }
}

template <int SIZE, int WIDTH, class T>
__device__ __forceinline__ void add_product_16bit(float (&out)[SIZE / 8][4], const float (&a)[WIDTH / 8][4], const T* b) {
    constexpr int STRIDE = TileConfig<T, SIZE>::stride;
    int row = lane() % 8, which = lane() / 8;
#pragma unroll
    for (int k = 0; k < WIDTH / 8; k += 2) {
        unsigned of_a[4] = {pack_pair(T(), a[k][0], a[k][1]), pack_pair(T(), a[k][2], a[k][3]),
                            pack_pair(T(), a[k + 1][0], a[k + 1][1]), pack_pair(T(), a[k + 1][2], a[k + 1][3])};
#pragma unroll
        for (int n = 0; n < SIZE / 8; n += 2) {
            unsigned of_b[4];
            ldmatrix_transposed(of_b, b + (k * 8 + which % 2 * 8 + row) * STRIDE + n * 8 + which / 2 * 8);
            mma(T(), out[n], of_a, of_b[0], of_b[1]);
            mma(T(), out[n + 1], of_a, of_b[2], of_b[3]);
        }
    }
}

// Tensor cores do not keep f32 precision.
template <int SIZE, int WIDTH>
__device__ __forceinline__ void product_f32(float (&sums)[WIDTH / 8][4], const float* a, const float* b) {
    constexpr int STRIDE = TileConfig<float, SIZE>::stride;
    const float* upper = a + lane() / 4 * STRIDE;
    const float* lower = upper + 8 * STRIDE;
    b += lane() % 4 * 2 * STRIDE;
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0;
    }
#pragma unroll 2
    for (int k = 0; k < SIZE; k += 4) {
        float x[4], y[4];
        read<4>(x, upper + k);
        read<4>(y, lower + k);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            float left[4], right[4];
            read<4>(left, b + n * 8 * STRIDE + k);
            read<4>(right, b + (n * 8 + 1) * STRIDE + k);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sums[n][0] += x[i] * left[i];
                sums[n][1] += x[i] * right[i];
                sums[n][2] += y[i] * left[i];
                sums[n][3] += y[i] * right[i];
            }
        }
    }
}

template <int SIZE, int WIDTH>
__device__ __forceinline__ void add_product_f32(float (&out)[SIZE / 8][4], const float (&a)[WIDTH / 8][4], const float* b) {
    constexpr int STRIDE = TileConfig<float, SIZE>::stride;
    b += lane() % 4 * 2;
#pragma unroll
    for (int k = 0; k < WIDTH; k++) {
        // The lane of the same rows that holds column k.
        int owner = lane() / 4 * 4 + k % 8 / 2;
        float x = shuffle(a[k / 8][k % 2], owner), y = shuffle(a[k / 8][k % 2 + 2], owner);
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
            float of_b[2];
            read<2>(of_b, b + k * STRIDE + n * 8);
            out[n][0] += x * of_b[0];
            out[n][1] += x * of_b[1];
            out[n][2] += y * of_b[0];
            out[n][3] += y * of_b[1];
        }
    }
}

// sums (16 × WIDTH) = a (16 × SIZE) · bᵀ, b with WIDTH rows.
template <int SIZE, int WIDTH, class T>
__device__ __forceinline__ void product(float (&sums)[WIDTH / 8][4], const T* a, const T* b) {
    if constexpr (sizeof(T) == 4) product_f32<SIZE, WIDTH>(sums, a, b);
    else product_16bit<SIZE, WIDTH>(sums, a, b);
}

// out (16 × SIZE) += a (16 × WIDTH) · b, b with WIDTH rows.
template <int SIZE, int WIDTH, class T>
__device__ __forceinline__ void add_product(float (&out)[SIZE / 8][4], const float (&a)[WIDTH / 8][4], const T* b) {
    if constexpr (sizeof(T) == 4) add_product_f32<SIZE, WIDTH>(out, a, b);
    else add_product_16bit<SIZE, WIDTH>(out, a, b);
}

// Parameters of attention scores. Positions are relative to the start of a sequence.
struct Scores {
    // For each query, the first key that it attends to and one past the last, `runs` times.
    const int* key_ranges;
    int runs;
    // A slope per head (ALiBi), a bias per bucket and head, and the bucket of each distance from 1 - reach
    // on; or null.
    const float* alibi_slopes;
    const float* bias;
    const int* buckets;
    int max_distance;
    int heads;
    float scale;
    // Softcap; 0: none.
    float softcap;
    // Bias of keys before this one, for queries that attend to more than one range.
    int global_end;
    float global_bias;
};

// One query: its first two key ranges, and a pointer to the others. If there is one range, the second is
// empty.
struct Query {
    int position;
    int first;
    int end;
    int second;
    int second_end;
    const int* others;
};

__device__ __forceinline__ Query query_of(const Scores& scores, long long row, int position) {
    const int* key_ranges = scores.key_ranges + row * scores.runs * 2;
    bool more = scores.runs > 1;
    return {position, key_ranges[0], key_ranges[1], more ? key_ranges[2] : 0, more ? key_ranges[3] : 0, key_ranges + 4};
}

__device__ __forceinline__ bool is_visible(const Scores& scores, const Query& query, int key) {
    bool visible = (key >= query.first && key < query.end) || (key >= query.second && key < query.second_end);
    for (int i = 0; i < scores.runs - 2; i++) visible = visible || (key >= query.others[2 * i] && key < query.others[2 * i + 1]);
    return visible;
}

// Returns the score of a dot product, and the derivative of the softcap there.
__device__ __forceinline__ float score(const Scores& scores, int head, const Query& query, int key, float product,
                                       float& slope) {
    float x = product * scores.scale;
    slope = 1;
    if (scores.softcap > 0) {
        float t = tanhf(x / scores.softcap);
        x = scores.softcap * t;
        slope = 1 - t * t;
    }
    int distance = key - query.position;
    if (scores.alibi_slopes) x += scores.alibi_slopes[head] * distance;
    if (scores.bias) x += scores.bias[scores.buckets[distance + scores.max_distance - 1] * scores.heads + head];
    if (key < scores.global_end && query.second_end > query.second) x += scores.global_bias;
    return x;
}

#define LOG2_E 1.44269504f

// Returns e^x.
__device__ __forceinline__ float exponential(float x) { return exp2_approx(x * LOG2_E); }

// Queries of one sequence, and the keys from the first to the last that any of them attends to. `base` is the
// first row of a sequence.
struct QueryTile {
    int first;
    int count;
    int query_base;
    int key_base;
    int key_first;
    int key_end;
    int queries;
    int keys;
};

// Keys of one sequence, and the queries from the first to the last that attend to any of them.
struct KeyTile {
    int first;
    int count;
    int key_base;
    int query_base;
    int query_first;
    int query_end;
    int queries;
    int keys;
};

// Instantiations for each head size.
#define FOR_EACH_SIZE(BODY, T, type) BODY(T, type, 64) BODY(T, type, 128) BODY(T, type, 256)

// The score parameters of every attention kernel.
#define SCORES                                                                                                    \
    const int *key_ranges, int runs, const float *alibi_slopes, const float *bias, const int *buckets, int max_distance, int heads,    \
        float scale, float softcap, int global_end, float global_bias
#define SCORE_ARGUMENTS Scores{key_ranges, runs, alibi_slopes, bias, buckets, max_distance, heads, scale, softcap, global_end, global_bias}
