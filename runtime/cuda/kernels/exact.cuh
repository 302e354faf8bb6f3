// Arithmetic with the same bits as on the CPU: every operation is one IEEE rounding, and functions are the polynomials of
// kernels/src/math.rs. Files that include this header are compiled with -fmad=false, so that `a * b + c` is rounded twice
// and fmaf(a, b, c) once, as written.
#pragma once

#include "common.cuh"

// 1.5 · 2^23, at which the unit in the last place of an f32 is one.
#define ROUNDING_SHIFT 12582912.0f

// Rounds to the nearest integer, ties to even; |x| < 2^22.
__device__ __forceinline__ float round_even(float x) { return (x + ROUNDING_SHIFT) - ROUNDING_SHIFT; }

// The second operand if either is NaN, as the CPU's vector instructions.
__device__ __forceinline__ float larger(float a, float b) { return a > b ? a : b; }
__device__ __forceinline__ float smaller(float a, float b) { return a < b ? a : b; }

__device__ __forceinline__ float absolute(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffff); }

// Returns e^x for x within the range of exp_exact.
__device__ __forceinline__ float exp_within(float x) {
    float n = round_even(x * 1.44269502e+00f);
    float r = fmaf(n, -0.6933594f, x);
    r = fmaf(n, 2.1219444e-4f, r);
    float value = 1.9875692e-4f;
    value = fmaf(value, r, 1.3982e-3f);
    value = fmaf(value, r, 8.333452e-3f);
    value = fmaf(value, r, 4.1665796e-2f);
    value = fmaf(value, r, 1.6666665e-1f);
    value = fmaf(value, r, 0.5f);
    value = fmaf(r * r, value, r);
    return (value + 1.0f) * __uint_as_float((unsigned)((int)n + 127) << 23);
}

// Returns e^x: 0 below −87, e^88 above 88, NaN for NaN.
__device__ __forceinline__ float exp_exact(float x) {
    float value = exp_within(smaller(88.0f, larger(-87.0f, x)));
    return x < -87.0f ? 0.0f : value;
}

__device__ __forceinline__ float sigmoid_exact(float x) { return 1.0f / (1.0f + exp_exact(0.0f - x)); }

__device__ __forceinline__ float tanh_exact(float x) {
    float e = exp_exact(absolute(x) * -2.0f);
    float magnitude = (1.0f - e) / (1.0f + e);
    return x < 0.0f ? 0.0f - magnitude : magnitude;
}

__device__ __forceinline__ float gelu_exact(float x) {
    float magnitude = smaller(10.0f, absolute(x));
    float exponent = -1.3184118e-6f;
    exponent = fmaf(exponent, magnitude, 1.9447594e-5f);
    exponent = fmaf(exponent, magnitude, -9.113032e-5f);
    exponent = fmaf(exponent, magnitude, -1.8858844e-4f);
    exponent = fmaf(exponent, magnitude, 5.022143e-3f);
    exponent = fmaf(exponent, magnitude, -3.647868e-2f);
    exponent = fmaf(exponent, magnitude, -3.1826696e-1f);
    exponent = fmaf(exponent, magnitude, -7.9788935e-1f);
    exponent = fmaf(exponent, magnitude, -0.69314718f);
    return larger(0.0f, x) - magnitude * exp_within(exponent);
}

__device__ __forceinline__ float softcap_exact(float x, float cap) { return tanh_exact(x / cap) * cap; }

// The functions of rows, numbered as by PointwiseFunction::code.
__device__ __forceinline__ float pointwise_exact(int function, float parameter, float x) {
    switch (function) {
    case 0: return x * sigmoid_exact(x);
    case 1: return gelu_exact(x);
    case 2: return x * sigmoid_exact(fmaf((x * x) * x, 0.044715f, x) * 1.5957692f);
    case 3: return larger(0.0f, x);
    case 4: return sigmoid_exact(x);
    case 5: {
        float value = exp_exact(x);
        return 0.0f < x ? x + 1.0f : value;
    }
    case 6: return x * parameter;
    case 7: return softcap_exact(x, parameter);
    default: return smaller(parameter, larger(-parameter, x));
    }
}

// Sums or combines the values of sixteen lanes as the CPU's fixed tree: lane i with lane i + 8, then 4, 2 and 1. Every
// lane of the sixteen receives the result of lane 0: addition is commutative bit for bit.
__device__ __forceinline__ float tree_sum(float x) {
#pragma unroll
    for (int apart = 8; apart > 0; apart /= 2) x += shuffle_xor(x, apart);
    return x;
}

__device__ __forceinline__ float warp_larger(float x) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = larger(shuffle_xor(x, mask), x);
    return x;
}

// The scale of integers up to `code` and its inverse; zeros if the largest magnitude is below 2^−100.
struct IntegerScale {
    float scale, inverse;
};

__device__ __forceinline__ IntegerScale integer_scale(float largest, float code) {
    if (largest < 7.888609e-31f) return {0.0f, 0.0f};
    return {largest / code, code / largest};
}
