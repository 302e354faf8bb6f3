// RMSNorm, LayerNorm and L2 normalization of groups of columns. A warp computes one group; a row has one or
// more groups, and the weights repeat if there are fewer than columns.
#include "common.cuh"

struct Moments {
    float mean;
    float factor;
};

// Returns the mean and the factor (reciprocal standard deviation) of a group; the mean is zero for RMSNorm.
template <int COUNT, class T> __device__ __forceinline__ Moments moments(const T* x, int size, bool centered, float epsilon) {
    float x_of[COUNT], sum = 0, square = 0;
    if (centered) {
        for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
            read<COUNT>(x_of, x + i);
#pragma unroll
            for (int j = 0; j < COUNT; j++) sum += x_of[j];
        }
        sum = sum_of_warp(sum);
    }
    float mean = sum / size;
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        read<COUNT>(x_of, x + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) square += (x_of[j] - mean) * (x_of[j] - mean);
    }
    return {mean, 1 / sqrtf(sum_of_warp(square) / size + epsilon)};
}

template <int COUNT, class T>
__device__ __forceinline__ void norm_run(const T* x, T* out, const float* weight, const float* bias, int size,
                                         bool centered, float epsilon) {
    Moments own = moments<COUNT>(x, size, centered, epsilon);
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        float x_of[COUNT], factors[COUNT], terms[COUNT] = {};
        read<COUNT>(x_of, x + i);
        read_floats<COUNT>(factors, weight + i);
        if (bias) read_floats<COUNT>(terms, bias + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) x_of[j] = (x_of[j] - own.mean) * own.factor * factors[j] + terms[j];
        write<COUNT>(out + i, x_of);
    }
}

template <int COUNT, class T> __device__ __forceinline__ void add_run(const T* a, const T* b, T* sum, int size) {
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        float x[COUNT], y[COUNT];
        read<COUNT>(x, a + i);
        read<COUNT>(y, b + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) x[j] += y[j];
        write<COUNT>(sum + i, x);
    }
}

// If `other` is given, x is first added to it (residual), and the sum is stored in `sum`.
template <class T>
__device__ void norm(const T* x, const T* other, T* sum, T* out, const float* weight, const float* bias, int runs,
                     int size, int weights, int centered, float epsilon) {
    int run = blockIdx.x * warps() + warp();
    if (run >= runs) return;
    long long at = (long long)run * size;
    int first = (int)(at % weights);
    bool all_wide = is_wide(x, size) && is_wide(out, size) && is_wide(other, size) && is_wide(sum, size) &&
        is_wide(weight, size) && is_wide(bias, size);
    if (other) {
        if (all_wide) add_run<wide<T>()>(x + at, other + at, sum + at, size);
        else add_run<1>(x + at, other + at, sum + at, size);
        meet_warp();
        x = sum;
    }
    const float* terms = bias ? bias + first : nullptr;
    if (all_wide) norm_run<wide<T>()>(x + at, out + at, weight + first, terms, size, centered, epsilon);
    else norm_run<1>(x + at, out + at, weight + first, terms, size, centered, epsilon);
}

template <int COUNT, class T>
__device__ __forceinline__ Moments norm_back_run(const T* x, const T* gradient, T* to, const float* weight, int size,
                                                 bool centered, float epsilon, bool add) {
    Moments own = moments<COUNT>(x, size, centered, epsilon);
    float x_of[COUNT], g[COUNT], factors[COUNT], sum = 0, along = 0;
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        read<COUNT>(x_of, x + i);
        read<COUNT>(g, gradient + i);
        read_floats<COUNT>(factors, weight + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            float steep = g[j] * factors[j];
            sum += steep;
            along += steep * (x_of[j] - own.mean) * own.factor;
        }
    }
    sum = centered ? sum_of_warp(sum) / size : 0;
    along = sum_of_warp(along) / size;
    if (!to) return own;
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        read<COUNT>(x_of, x + i);
        read<COUNT>(g, gradient + i);
        read_floats<COUNT>(factors, weight + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            float z = (x_of[j] - own.mean) * own.factor;
            g[j] = own.factor * (g[j] * factors[j] - sum - z * along);
        }
        give<COUNT>(to + i, g, add);
    }
    return own;
}

// Computes the gradient of x, if needed; the mean and factor of each group are stored in `left` for the
// gradients of the weights.
template <class T>
__device__ void norm_back(const T* x, const T* gradient, T* to, const float* weight, float* left, int add, int runs,
                          int size, int weights, int centered, float epsilon) {
    int run = blockIdx.x * warps() + warp();
    if (run >= runs) return;
    long long at = (long long)run * size;
    const float* factors = weight + at % weights;
    bool all_wide = is_wide(x, size) && is_wide(gradient, size) && is_wide(to, size) && is_wide(weight, size);
    T* own_to = to ? to + at : nullptr;
    Moments own = all_wide
        ? norm_back_run<wide<T>()>(x + at, gradient + at, own_to, factors, size, centered, epsilon, add)
        : norm_back_run<1>(x + at, gradient + at, own_to, factors, size, centered, epsilon, add);
    if (lane() == 0) {
        left[2 * run] = own.mean;
        left[2 * run + 1] = own.factor;
    }
}

// Normalizes each group of columns to L2 norm `factor`.
template <class T> __device__ void unit(const T* x, T* out, int runs, int size, float epsilon, float factor) {
    int run = blockIdx.x * warps() + warp();
    if (run >= runs) return;
    x += (long long)run * size;
    out += (long long)run * size;
    float square = 0;
    for (int i = lane(); i < size; i += LANES) square += number(x[i]) * number(x[i]);
    float scale = factor / sqrtf(sum_of_warp(square) + epsilon);
    for (int i = lane(); i < size; i += LANES) set(out[i], number(x[i]) * scale);
}

template <class T>
__device__ void unit_back(const T* x, const T* gradient, T* to, int add, int runs, int size, float epsilon,
                          float factor) {
    int run = blockIdx.x * warps() + warp();
    if (run >= runs) return;
    x += (long long)run * size;
    gradient += (long long)run * size;
    to += (long long)run * size;
    float square = 0, along = 0;
    for (int i = lane(); i < size; i += LANES) {
        square += number(x[i]) * number(x[i]);
        along += number(x[i]) * number(gradient[i]);
    }
    square = sum_of_warp(square) + epsilon;
    along = sum_of_warp(along) / square;
    float scale = factor / sqrtf(square);
    for (int i = lane(); i < size; i += LANES) give(to[i], scale * (number(gradient[i]) - number(x[i]) * along), add);
}

#define KERNELS(T, type)                                                                                           \
    ENTRY(norm_##type, 256,                                                                                        \
          (const T* x, const T* other, T* sum, T* out, const float* weight, const float* bias, int runs, int size, \
           int weights, int centered, float epsilon),                                                               \
          norm(x, other, sum, out, weight, bias, runs, size, weights, centered, epsilon))                           \
    ENTRY(norm_back_##type, 256,                                                                                   \
          (const T* x, const T* gradient, T* to, const float* weight, float* left, int add, int runs, int size,    \
           int weights, int centered, float epsilon),                                                               \
          norm_back(x, gradient, to, weight, left, add, runs, size, weights, centered, epsilon))                    \
    ENTRY(unit_##type, 256, (const T* x, T* out, int runs, int size, float epsilon, float factor),                 \
          unit(x, out, runs, size, epsilon, factor))                                                               \
    ENTRY(unit_back_##type, 256,                                                                                   \
          (const T* x, const T* gradient, T* to, int add, int runs, int size, float epsilon, float factor),        \
          unit_back(x, gradient, to, add, runs, size, epsilon, factor))
FOR_EACH_TYPE(KERNELS)
