// FP8 casts (arXiv:2209.05433) for matmuls: tensors times a scale, rounded to nearest and saturated. The
// largest magnitude of each tensor is recorded for the scale of later steps (delayed scaling).
#include "common.cuh"

#define THREADS 256
#define SIDE 32
// Elements from an inverse scale to the next: cuBLASLt reads them at multiples of 16 bytes.
#define SCALE_STRIDE 4

// Returns the bits of an FP8 number with `digits` mantissa bits and exponent bias `bias`; `max_code` is
// that of the largest finite number, `one` is the reciprocal of the smallest subnormal.
__device__ __forceinline__ unsigned char encode(float x, int digits, int bias, unsigned max_code, float one) {
    unsigned bits = __float_as_uint(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff, code;
    if (size > 0x7f800000) return (unsigned char)(sign | 0x7f);
    if ((int)(size >> 23) <= 127 - bias) {
        // Subnormal: a multiple of the smallest number.
        code = (unsigned)rintf(__uint_as_float(size) * one);
    } else {
        int shift = 23 - digits;
        code = ((size + (1u << (shift - 1)) - 1 + (size >> shift & 1)) >> shift) - ((unsigned)(127 - bias) << digits);
        code = min(code, max_code);
    }
    return (unsigned char)(sign | code);
}

// E4M3, up to 448, with three mantissa bits; or E5M2 if `e5m2`, up to 57344, with two.
__device__ __forceinline__ unsigned char encode_fp8(float x, int e5m2) {
    return e5m2 ? encode(x, 2, 15, 0x7b, 65536.0f) : encode(x, 3, 7, 0x7e, 512.0f);
}

// Returns the block-wide maximum, to thread 0.
__device__ __forceinline__ float block_max(float maximum, float* of_warps) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) maximum = max(maximum, shuffle_xor(maximum, mask));
    if (lane() == 0) of_warps[warp()] = maximum;
    sync_block();
    for (int i = 0; threadIdx.x == 0 && i < THREADS / LANES; i++) maximum = max(maximum, of_warps[i]);
    return maximum;
}

// Writes the cast matrix, or its transpose, whose rows are `transposed_width` long and zero-padded; either output
// may be null. Each block writes its largest magnitude to `parts`.
template <class T>
__device__ void cast_to_fp8(const T* x, int rows, int columns, int width, const float* scale, int e5m2,
                              unsigned char* out, unsigned char* transposed, int transposed_width, float* parts) {
    __shared__ unsigned char tile[SIDE][SIDE + 1];
    __shared__ float of_warps[THREADS / LANES];
    int first_row = blockIdx.y * SIDE, first_column = blockIdx.x * SIDE;
    float maximum = 0, factor = *scale;
    for (int i = warp(); i < SIDE; i += THREADS / LANES) {
        int row = first_row + i, column = first_column + lane();
        bool there = row < rows && column < columns;
        float own = there ? to_f32(x[(long long)row * width + column]) : 0;
        maximum = max(maximum, fabsf(own));
        unsigned char code = encode_fp8(own * factor, e5m2);
        if (out && there) out[(long long)row * columns + column] = code;
        tile[i][lane()] = code;
    }
    sync_block();
    for (int i = warp(); transposed && i < SIDE; i += THREADS / LANES) {
        int row = first_row + lane(), column = first_column + i;
        if (column < columns && row < transposed_width) transposed[(long long)column * transposed_width + row] = tile[lane()][i];
    }
    maximum = block_max(maximum, of_warps);
    if (threadIdx.x > 0) return;
    parts[(long long)blockIdx.y * gridDim.x + blockIdx.x] = maximum;
}

// In one block: updates the largest magnitude of a tensor since the last step with the maximum of all parts.
__device__ __forceinline__ void update_maximum(const float* parts, int count, float* to) {
    __shared__ float of_warps[THREADS / LANES];
    float maximum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) maximum = max(maximum, parts[i]);
    maximum = block_max(maximum, of_warps);
    if (threadIdx.x > 0) return;
    *to = max(*to, maximum);
}

// After a step: appends the largest magnitude of each tensor to its history and derives its scale from the
// maximum of the history. A thread handles one tensor.
__device__ __forceinline__ void update_scales(float* amax, float* history, float* scales, float* inverse_scales,
                                         const float* limits, int tables, int steps) {
    int table = blockIdx.x * blockDim.x + threadIdx.x;
    if (table >= tables) return;
    float* own = history + (long long)table * steps;
    float maximum = amax[table];
    for (int i = steps - 1; i > 0; i--) {
        own[i] = own[i - 1];
        maximum = max(maximum, own[i]);
    }
    own[0] = amax[table];
    amax[table] = 0;
    // A power of two, so that scaling does not round.
    bool known = maximum > 0 && isfinite(maximum);
    float scale = known ? exp2f(floorf(log2f(limits[table] / maximum))) : 1;
    scales[table] = scale;
    inverse_scales[table * SCALE_STRIDE] = 1 / scale;
}

ENTRY(update_amax, THREADS, (const float* parts, int count, float* to), update_maximum(parts, count, to))
ENTRY(update_fp8_scales, THREADS,
      (float* amax, float* history, float* scales, float* inverse_scales, const float* limits, int tables, int steps),
      update_scales(amax, history, scales, inverse_scales, limits, tables, steps))

#define KERNELS(T, type)                                                                                              \
    ENTRY(to_fp8_##type, THREADS,                                                                                   \
          (const T* x, int rows, int columns, int width, const float* scale, int e5m2, unsigned char* out,             \
           unsigned char* transposed, int transposed_width, float* parts),                                                    \
          cast_to_fp8(x, rows, columns, width, scale, e5m2, out, transposed, transposed_width, parts))
FOR_EACH_TYPE(KERNELS)
