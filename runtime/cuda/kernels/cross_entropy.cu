// Cross-entropy loss with label smoothing; the gradient overwrites the logits. Processes a few rows at a
// time, so that the logits of a large vocabulary never exist all at once.
#include "common.cuh"

#define THREADS 512

// Running statistics of some logits of a row.
struct RowStatistics {
    float maximum;
    int best;
    // Sum of exp(x - most).
    float sum;
    // Sum of x.
    float total;
};

__device__ __forceinline__ RowStatistics merge(RowStatistics a, RowStatistics b) {
    bool second = b.maximum > a.maximum || (b.maximum == a.maximum && b.best < a.best);
    float maximum = second ? b.maximum : a.maximum;
    float of_a = a.sum == 0 ? 0 : a.sum * expf(a.maximum - maximum);
    float of_b = b.sum == 0 ? 0 : b.sum * expf(b.maximum - maximum);
    return {maximum, second ? b.best : a.best, of_a + of_b, a.total + b.total};
}

__device__ __forceinline__ RowStatistics shuffle_statistics(RowStatistics own, int mask) {
    return {shuffle_xor(own.maximum, mask), shuffle_xor(own.best, mask), shuffle_xor(own.sum, mask), shuffle_xor(own.total, mask)};
}

__device__ __forceinline__ RowStatistics merge_in_block(RowStatistics own) {
    __shared__ RowStatistics of_warps[THREADS / LANES];
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) own = merge(own, shuffle_statistics(own, mask));
    if (lane() == 0) of_warps[warp()] = own;
    sync_block();
    RowStatistics all = of_warps[0];
    for (int i = 1; i < warps(); i++) all = merge(all, of_warps[i]);
    return all;
}

template <int COUNT, class T> __device__ __forceinline__ void accumulate(RowStatistics& statistics, const T* x, int column) {
    float numbers[COUNT];
    read<COUNT>(numbers, x + column);
    float maximum = statistics.maximum;
    int best = statistics.best;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (numbers[i] > maximum) {
            maximum = numbers[i];
            best = column + i;
        }
        statistics.total += numbers[i];
    }
    float sum = statistics.sum == 0 ? 0 : statistics.sum * expf(statistics.maximum - maximum);
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum += expf(numbers[i] - maximum);
    statistics.maximum = maximum;
    statistics.best = best;
    statistics.sum = sum;
}

template <int COUNT, class T>
__device__ __forceinline__ void write_gradient(T* x, int column, float total, float even, float target, int id, float factor) {
    float numbers[COUNT];
    read<COUNT>(numbers, x + column);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = (expf(numbers[i] - total) - even - (column + i == id ? target : 0)) * factor;
    }
    write<COUNT>(x + column, numbers);
}

// A block handles one row; rows have stride `width`. Row n of `results` receives loss, weight and accuracy;
// loss and accuracy are multiplied by the weight.
template <class T>
__device__ void cross_entropy(T* outputs, const int* ids, const float* weights, float label_smoothing, const double* scale,
                              float* results, int columns, int width, int back) {
    constexpr int WIDE = vector_len<T>();
    int row = blockIdx.x, id = ids[row];
    float weight = weights[row];
    T* x = outputs + (long long)row * width;
    int packed = is_aligned(outputs, width) ? columns / WIDE * WIDE : 0;
    if (weight == 0) {
        for (int i = threadIdx.x; back && i < columns; i += blockDim.x) from_f32(x[i], 0);
        if (threadIdx.x < 3) results[3 * row + threadIdx.x] = 0;
        return;
    }
    RowStatistics own = {-infinity(), columns, 0, 0};
    for (int i = threadIdx.x * WIDE; i < packed; i += blockDim.x * WIDE) accumulate<WIDE>(own, x, i);
    for (int i = packed + threadIdx.x; i < columns; i += blockDim.x) accumulate<1>(own, x, i);
    RowStatistics all = merge_in_block(own);
    float total = all.maximum + logf(all.sum), of_id = to_f32(x[id]), even = label_smoothing / columns;
    sync_block();
    if (threadIdx.x == 0) {
        float loss = (1 - label_smoothing) * (total - of_id);
        if (label_smoothing > 0) loss += label_smoothing * (total - all.total / columns);
        results[3 * row] = loss * weight;
        results[3 * row + 1] = weight;
        results[3 * row + 2] = all.best == id ? weight : 0;
    }
    if (!back) return;
    float factor = weight * (float)*scale;
    for (int i = threadIdx.x * WIDE; i < packed; i += blockDim.x * WIDE) {
        write_gradient<WIDE>(x, i, total, even, 1 - label_smoothing, id, factor);
    }
    for (int i = packed + threadIdx.x; i < columns; i += blockDim.x) {
        write_gradient<1>(x, i, total, even, 1 - label_smoothing, id, factor);
    }
}

// Adds the results of all rows to three sums, in one block. Each row occurs `parts` times.
__device__ __forceinline__ void sum_all_results(const float* results, int rows, int parts, double* sums) {
    __shared__ double of_warps[THREADS / LANES];
    for (int which = 0; which < 3; which++) {
        double sum = 0;
        for (int row = threadIdx.x; row < rows; row += blockDim.x) sum += results[3 * row + which];
        sum = block_sum(sum, of_warps);
        if (threadIdx.x == 0) sums[which] += sum / parts;
    }
}

#define KERNELS(T, type)                                                                                               \
    ENTRY(cross_entropy_##type, THREADS,                                                                               \
          (T* outputs, const int* ids, const float* weights, float label_smoothing, const double* scale, float* results,     \
           int columns, int width, int back),                                                                          \
          cross_entropy(outputs, ids, weights, label_smoothing, scale, results, columns, width, back))
FOR_EACH_TYPE(KERNELS)

ENTRY(sum_results, THREADS, (const float* results, int rows, int parts, double* sums),
      sum_all_results(results, rows, parts, sums))
