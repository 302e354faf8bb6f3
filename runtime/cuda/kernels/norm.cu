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
        sum = warp_sum(sum);
    }
    float mean = sum / size;
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        read<COUNT>(x_of, x + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) square += (x_of[j] - mean) * (x_of[j] - mean);
    }
    return {mean, 1 / sqrtf(warp_sum(square) / size + epsilon)};
}

template <int COUNT, class T>
__device__ __forceinline__ void norm_group(const T* x, T* out, const float* weight, const float* bias, int size,
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

template <int COUNT, class T> __device__ __forceinline__ void add_group(const T* a, const T* b, T* sum, int size) {
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
__device__ void norm(const T* x, const T* other, T* sum, T* out, const float* weight, const float* bias, int groups,
                     int size, int weights, int centered, float epsilon) {
    int group = blockIdx.x * warps() + warp();
    if (group >= groups) return;
    long long at = (long long)group * size;
    int first = (int)(at % weights);
    bool aligned = is_aligned(x, size) && is_aligned(out, size) && is_aligned(other, size) && is_aligned(sum, size) &&
        is_aligned(weight, size) && is_aligned(bias, size);
    if (other) {
        if (aligned) add_group<vector_len<T>()>(x + at, other + at, sum + at, size);
        else add_group<1>(x + at, other + at, sum + at, size);
        sync_warp();
        x = sum;
    }
    const float* terms = bias ? bias + first : nullptr;
    if (aligned) norm_group<vector_len<T>()>(x + at, out + at, weight + first, terms, size, centered, epsilon);
    else norm_group<1>(x + at, out + at, weight + first, terms, size, centered, epsilon);
}

template <int COUNT, class T>
__device__ __forceinline__ Moments norm_backward_group(const T* x, const T* gradient, T* to, const float* weight, int size,
                                                 bool centered, float epsilon, bool add) {
    Moments own = moments<COUNT>(x, size, centered, epsilon);
    float x_of[COUNT], g[COUNT], factors[COUNT], sum = 0, inner = 0;
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        read<COUNT>(x_of, x + i);
        read<COUNT>(g, gradient + i);
        read_floats<COUNT>(factors, weight + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            float weighted = g[j] * factors[j];
            sum += weighted;
            inner += weighted * (x_of[j] - own.mean) * own.factor;
        }
    }
    sum = centered ? warp_sum(sum) / size : 0;
    inner = warp_sum(inner) / size;
    if (!to) return own;
    for (int i = lane() * COUNT; i < size; i += LANES * COUNT) {
        read<COUNT>(x_of, x + i);
        read<COUNT>(g, gradient + i);
        read_floats<COUNT>(factors, weight + i);
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            float z = (x_of[j] - own.mean) * own.factor;
            g[j] = own.factor * (g[j] * factors[j] - sum - z * inner);
        }
        store_or_accumulate<COUNT>(to + i, g, add);
    }
    return own;
}

// Computes the gradient of x, if needed; the mean and factor of each group are stored in `left` for the
// gradients of the weights.
template <class T>
__device__ void norm_backward(const T* x, const T* gradient, T* to, const float* weight, float* saved, int add, int groups,
                          int size, int weights, int centered, float epsilon) {
    int group = blockIdx.x * warps() + warp();
    if (group >= groups) return;
    long long at = (long long)group * size;
    const float* factors = weight + at % weights;
    bool aligned = is_aligned(x, size) && is_aligned(gradient, size) && is_aligned(to, size) && is_aligned(weight, size);
    T* own_to = to ? to + at : nullptr;
    Moments own = aligned
        ? norm_backward_group<vector_len<T>()>(x + at, gradient + at, own_to, factors, size, centered, epsilon, add)
        : norm_backward_group<1>(x + at, gradient + at, own_to, factors, size, centered, epsilon, add);
    if (lane() == 0) {
        saved[2 * group] = own.mean;
        saved[2 * group + 1] = own.factor;
    }
}

// Normalizes each group of columns to L2 norm `factor`.
template <class T> __device__ void l2_normalize(const T* x, T* out, int groups, int size, float epsilon, float factor) {
    int group = blockIdx.x * warps() + warp();
    if (group >= groups) return;
    x += (long long)group * size;
    out += (long long)group * size;
    float square = 0;
    for (int i = lane(); i < size; i += LANES) square += to_f32(x[i]) * to_f32(x[i]);
    float scale = factor / sqrtf(warp_sum(square) + epsilon);
    for (int i = lane(); i < size; i += LANES) from_f32(out[i], to_f32(x[i]) * scale);
}

template <class T>
__device__ void l2_normalize_backward(const T* x, const T* gradient, T* to, int add, int groups, int size, float epsilon,
                          float factor) {
    int group = blockIdx.x * warps() + warp();
    if (group >= groups) return;
    x += (long long)group * size;
    gradient += (long long)group * size;
    to += (long long)group * size;
    float square = 0, inner = 0;
    for (int i = lane(); i < size; i += LANES) {
        square += to_f32(x[i]) * to_f32(x[i]);
        inner += to_f32(x[i]) * to_f32(gradient[i]);
    }
    square = warp_sum(square) + epsilon;
    inner = warp_sum(inner) / square;
    float scale = factor / sqrtf(square);
    for (int i = lane(); i < size; i += LANES) store_or_accumulate(to[i], scale * (to_f32(gradient[i]) - to_f32(x[i]) * inner), add);
}

#define KERNELS(T, type)                                                                                           \
    ENTRY(norm_##type, 256,                                                                                        \
          (const T* x, const T* other, T* sum, T* out, const float* weight, const float* bias, int groups, int size, \
           int weights, int centered, float epsilon),                                                               \
          norm(x, other, sum, out, weight, bias, groups, size, weights, centered, epsilon))                           \
    ENTRY(norm_backward_##type, 256,                                                                                   \
          (const T* x, const T* gradient, T* to, const float* weight, float* saved, int add, int groups, int size,    \
           int weights, int centered, float epsilon),                                                               \
          norm_backward(x, gradient, to, weight, saved, add, groups, size, weights, centered, epsilon))                    \
    ENTRY(l2_normalize_##type, 256, (const T* x, T* out, int groups, int size, float epsilon, float factor),                 \
          l2_normalize(x, out, groups, size, epsilon, factor))                                                               \
    ENTRY(l2_normalize_backward_##type, 256,                                                                                   \
          (const T* x, const T* gradient, T* to, int add, int groups, int size, float epsilon, float factor),        \
          l2_normalize_backward(x, gradient, to, add, groups, size, epsilon, factor))
FOR_EACH_TYPE(KERNELS)
