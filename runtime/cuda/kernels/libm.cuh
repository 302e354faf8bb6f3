// Functions of f32 with the bits of the Rust crate libm, which the CPU uses where a model is sensitive to the last bit: the
// algorithms of FreeBSD's msun, each operation one IEEE rounding.
#pragma once

#include "exact.cuh"

// Returns x · 2^n for n from −150 to 128.
__device__ __forceinline__ float scale_by_power(float x, int n) {
    if (n > 127) {
        x = x * __uint_as_float(0x7f000000);
        n -= 127;
    } else if (n < -126) {
        // 2^−102, so that subnormal results are rounded once.
        x = x * __uint_as_float(0x0c800000);
        n += 102;
    }
    return x * __uint_as_float((unsigned)(n + 127) << 23);
}

__device__ __forceinline__ float exp_libm(float x) {
    unsigned magnitude = __float_as_uint(x) & 0x7fffffff;
    bool is_negative = __float_as_uint(x) >> 31 != 0;
    if (magnitude > 0x7f800000) return x;
    if (magnitude >= 0x42b17218 && !is_negative) return x * __uint_as_float(0x7f000000);
    if (magnitude >= 0x42cff1b5 && is_negative) return 0.0f;
    if (magnitude <= 0x39000000) return 1.0f + x;
    int k = 0;
    float high = x, low = 0.0f;
    if (magnitude > 0x3eb17218) {
        if (magnitude > 0x3f851592) k = (int)(1.4426950216e+00f * x + (is_negative ? -0.5f : 0.5f));
        else k = is_negative ? -1 : 1;
        high = x - (float)k * 6.9314575195e-01f;
        low = (float)k * 1.4286067653e-06f;
        x = high - low;
    }
    float square = x * x;
    float c = x - square * (1.6666625440e-1f + square * -2.7667332906e-3f);
    float y = 1.0f + (x * c / (2.0f - c) - low + high);
    return k == 0 ? y : scale_by_power(y, k);
}

__device__ __forceinline__ float log1p_libm(float x) {
    unsigned bits = __float_as_uint(x);
    int k = 1;
    float c = 0.0f, f = 0.0f;
    if (bits < 0x3ed413d0 || bits >> 31) {
        if (bits >= 0xbf800000) return x == -1.0f ? -infinity() : __uint_as_float(0x7fc00000);
        if (bits << 1 < 0x33800000u << 1) return x;
        if (bits <= 0xbe95f619) {
            k = 0;
            f = x;
        }
    } else if (bits >= 0x7f800000) {
        return x;
    }
    if (k > 0) {
        float sum = 1.0f + x;
        unsigned shifted = __float_as_uint(sum) + (0x3f800000 - 0x3f3504f3);
        k = (int)(shifted >> 23) - 0x7f;
        if (k < 25) c = (k >= 2 ? 1.0f - (sum - x) : x - (sum - 1.0f)) / sum;
        f = __uint_as_float((shifted & 0x007fffff) + 0x3f3504f3) - 1.0f;
    }
    float s = f / (2.0f + f), z = s * s, w = z * z;
    float even = w * (0.40000972152f + w * 0.24279078841f), odd = z * (0.66666662693f + w * 0.28498786688f);
    float half_square = 0.5f * f * f, power = (float)k;
    return s * (half_square + (odd + even)) + (power * 9.0580006145e-06f + c) - half_square + f + power * 6.9313812256e-01f;
}
