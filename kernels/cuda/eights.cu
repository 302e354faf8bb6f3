// FP8 casts (arXiv:2209.05433) for matmuls: tensors times a scale, rounded to nearest and saturated. The
// largest magnitude of each tensor is recorded for the scale of later steps (delayed scaling).
#include "common.cuh"

#define THREADS 256
#define SIDE 32

// Returns the bits of an FP8 number with `digits` mantissa bits and exponent bias `bias`; `largest` are the
// bits of the largest finite number, `one` is the reciprocal of the smallest subnormal.
__device__ __forceinline__ unsigned char rounded(float x, int digits, int bias, unsigned largest, float one) {
    unsigned bits = __float_as_uint(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff, code;
    if (size > 0x7f800000) return (unsigned char)(sign | 0x7f);
    if ((int)(size >> 23) <= 127 - bias) {
        // Subnormal: a multiple of the smallest number.
        code = (unsigned)rintf(__uint_as_float(size) * one);
    } else {
        int shift = 23 - digits;
        code = ((size + (1u << (shift - 1)) - 1 + (size >> shift & 1)) >> shift) - ((unsigned)(127 - bias) << digits);
        code = min(code, largest);
    }
    return (unsigned char)(sign | code);
}

// E4M3, up to 448, with three mantissa bits; or E5M2 if `far`, up to 57344, with two.
__device__ __forceinline__ unsigned char eight_of(float x, int far) {
    return far ? rounded(x, 2, 15, 0x7b, 65536.0f) : rounded(x, 3, 7, 0x7e, 512.0f);
}

// Returns the block-wide maximum, to thread 0.
__device__ __forceinline__ float largest_of_block(float most, float* of_warps) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) most = max(most, across(most, mask));
    if (lane() == 0) of_warps[warp()] = most;
    meet();
    for (int i = 0; threadIdx.x == 0 && i < THREADS / LANES; i++) most = max(most, of_warps[i]);
    return most;
}

// Writes the cast matrix, or its transpose, whose rows are `turned_width` long and zero-padded; either output
// may be null. Each block writes its largest magnitude to `parts`.
template <class T>
__device__ void cast_to_eight(const T* x, int rows, int columns, int width, const float* scale, int far,
                              unsigned char* out, unsigned char* turned, int turned_width, float* parts) {
    __shared__ unsigned char tile[SIDE][SIDE + 1];
    __shared__ float of_warps[THREADS / LANES];
    int first_row = blockIdx.y * SIDE, first_column = blockIdx.x * SIDE;
    float most = 0, factor = *scale;
    for (int i = warp(); i < SIDE; i += THREADS / LANES) {
        int row = first_row + i, column = first_column + lane();
        bool there = row < rows && column < columns;
        float own = there ? number(x[(long long)row * width + column]) : 0;
        most = max(most, fabsf(own));
        unsigned char code = eight_of(own * factor, far);
        if (out && there) out[(long long)row * columns + column] = code;
        tile[i][lane()] = code;
    }
    meet();
    for (int i = warp(); turned && i < SIDE; i += THREADS / LANES) {
        int row = first_row + lane(), column = first_column + i;
        if (column < columns && row < turned_width) turned[(long long)column * turned_width + row] = tile[lane()][i];
    }
    most = largest_of_block(most, of_warps);
    if (threadIdx.x > 0) return;
    parts[(long long)blockIdx.y * gridDim.x + blockIdx.x] = most;
}

// In one block: updates the largest magnitude of a tensor since the last step with the maximum of all parts.
__device__ __forceinline__ void keep_largest(const float* parts, int count, float* to) {
    __shared__ float of_warps[THREADS / LANES];
    float most = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) most = max(most, parts[i]);
    most = largest_of_block(most, of_warps);
    if (threadIdx.x > 0) return;
    *to = max(*to, most);
}

// After a step: appends the largest magnitude of each tensor to its history and derives its scale from the
// maximum of the history. A thread handles one tensor.
__device__ __forceinline__ void remember(float* largest, float* history, float* scales, float* inverses,
                                         const float* limits, int tables, int steps) {
    int table = blockIdx.x * blockDim.x + threadIdx.x;
    if (table >= tables) return;
    float* own = history + (long long)table * steps;
    float most = largest[table];
    for (int i = steps - 1; i > 0; i--) {
        own[i] = own[i - 1];
        most = max(most, own[i]);
    }
    own[0] = largest[table];
    largest[table] = 0;
    // A power of two, so that scaling does not round.
    bool known = most > 0 && isfinite(most);
    float scale = known ? exp2f(floorf(log2f(limits[table] / most))) : 1;
    scales[table] = scale;
    inverses[table] = 1 / scale;
}

ENTRY(keep_largest_of_parts, THREADS, (const float* parts, int count, float* to), keep_largest(parts, count, to))
ENTRY(remember_largest, THREADS,
      (float* largest, float* history, float* scales, float* inverses, const float* limits, int tables, int steps),
      remember(largest, history, scales, inverses, limits, tables, steps))

#define KERNELS(T, type)                                                                                              \
    ENTRY(to_eight_##type, THREADS,                                                                                   \
          (const T* x, int rows, int columns, int width, const float* scale, int far, unsigned char* out,             \
           unsigned char* turned, int turned_width, float* parts),                                                    \
          cast_to_eight(x, rows, columns, width, scale, far, out, turned, turned_width, parts))
FOR_EACH_TYPE(KERNELS)
