// Cross-entropy loss with label smoothing; the gradient overwrites the logits. Processes a few rows at a
// time, so that the logits of a large vocabulary never exist all at once.
#include "common.cuh"

#define THREADS 512

// Running statistics of some logits of a row.
struct Seen {
    float most;
    int best;
    // Sum of exp(x - most).
    float sum;
    // Sum of x.
    float plain;
};

__device__ __forceinline__ Seen together(Seen a, Seen b) {
    bool second = b.most > a.most || (b.most == a.most && b.best < a.best);
    float most = second ? b.most : a.most;
    float of_a = a.sum == 0 ? 0 : a.sum * expf(a.most - most);
    float of_b = b.sum == 0 ? 0 : b.sum * expf(b.most - most);
    return {most, second ? b.best : a.best, of_a + of_b, a.plain + b.plain};
}

__device__ __forceinline__ Seen across_warp(Seen own, int mask) {
    return {across(own.most, mask), across(own.best, mask), across(own.sum, mask), across(own.plain, mask)};
}

__device__ __forceinline__ Seen together_in_block(Seen own) {
    __shared__ Seen of_warps[THREADS / LANES];
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) own = together(own, across_warp(own, mask));
    if (lane() == 0) of_warps[warp()] = own;
    meet();
    Seen all = of_warps[0];
    for (int i = 1; i < warps(); i++) all = together(all, of_warps[i]);
    return all;
}

template <int COUNT, class T> __device__ __forceinline__ void see(Seen& seen, const T* x, int column) {
    float numbers[COUNT];
    read<COUNT>(numbers, x + column);
    float most = seen.most;
    int best = seen.best;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (numbers[i] > most) {
            most = numbers[i];
            best = column + i;
        }
        seen.plain += numbers[i];
    }
    float sum = seen.sum == 0 ? 0 : seen.sum * expf(seen.most - most);
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum += expf(numbers[i] - most);
    seen.most = most;
    seen.best = best;
    seen.sum = sum;
}

template <int COUNT, class T>
__device__ __forceinline__ void steep(T* x, int column, float total, float even, float right, int id, float factor) {
    float numbers[COUNT];
    read<COUNT>(numbers, x + column);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = (expf(numbers[i] - total) - even - (column + i == id ? right : 0)) * factor;
    }
    write<COUNT>(x + column, numbers);
}

// A block handles one row; rows have stride `width`. Row n of `results` receives loss, weight and accuracy;
// loss and accuracy are multiplied by the weight.
template <class T>
__device__ void cross_entropy(T* outputs, const int* ids, const float* weights, float smoothing, const double* scale,
                              float* results, int columns, int width, int back) {
    constexpr int WIDE = wide<T>();
    int row = blockIdx.x, id = ids[row];
    float weight = weights[row];
    T* x = outputs + (long long)row * width;
    int packed = is_wide(outputs, width) ? columns / WIDE * WIDE : 0;
    if (weight == 0) {
        for (int i = threadIdx.x; back && i < columns; i += blockDim.x) set(x[i], 0);
        if (threadIdx.x < 3) results[3 * row + threadIdx.x] = 0;
        return;
    }
    Seen own = {-infinity(), columns, 0, 0};
    for (int i = threadIdx.x * WIDE; i < packed; i += blockDim.x * WIDE) see<WIDE>(own, x, i);
    for (int i = packed + threadIdx.x; i < columns; i += blockDim.x) see<1>(own, x, i);
    Seen all = together_in_block(own);
    float total = all.most + logf(all.sum), of_id = number(x[id]), even = smoothing / columns;
    meet();
    if (threadIdx.x == 0) {
        float loss = (1 - smoothing) * (total - of_id);
        if (smoothing > 0) loss += smoothing * (total - all.plain / columns);
        results[3 * row] = loss * weight;
        results[3 * row + 1] = weight;
        results[3 * row + 2] = all.best == id ? weight : 0;
    }
    if (!back) return;
    float factor = weight * (float)*scale;
    for (int i = threadIdx.x * WIDE; i < packed; i += blockDim.x * WIDE) {
        steep<WIDE>(x, i, total, even, 1 - smoothing, id, factor);
    }
    for (int i = packed + threadIdx.x; i < columns; i += blockDim.x) {
        steep<1>(x, i, total, even, 1 - smoothing, id, factor);
    }
}

// Adds the results of all rows to three sums, in one block. Each row occurs `parts` times.
__device__ __forceinline__ void add_all_results(const float* results, int rows, int parts, double* sums) {
    __shared__ double of_warps[THREADS / LANES];
    for (int which = 0; which < 3; which++) {
        double sum = 0;
        for (int row = threadIdx.x; row < rows; row += blockDim.x) sum += results[3 * row + which];
        sum = sum_of_block(sum, of_warps);
        if (threadIdx.x == 0) sums[which] += sum / parts;
    }
}

#define KERNELS(T, type)                                                                                               \
    ENTRY(cross_entropy_##type, THREADS,                                                                               \
          (T* outputs, const int* ids, const float* weights, float smoothing, const double* scale, float* results,     \
           int columns, int width, int back),                                                                          \
          cross_entropy(outputs, ids, weights, smoothing, scale, results, columns, width, back))
FOR_EACH_TYPE(KERNELS)

ENTRY(add_results, THREADS, (const float* results, int rows, int parts, double* sums),
      add_all_results(results, rows, parts, sums))
