// Causal depthwise conv1d, and the decay gate of a recurrent state.
#include "sums.cuh"

// `factors` has `taps` weights for each column, the oldest first. `places` has the position of each row in
// its sequence, followed by the number of rows after each row.
template <class T>
__device__ void convolve(const T* x, const float* factors, const int* places, T* out, int rows, int columns, int taps) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        int reach = min(taps, places[row] + 1);
        const float* own = factors + (long long)column * taps + taps - 1;
        float sum = 0;
        for (int ago = 0; ago < reach; ago++) sum += own[-ago] * number(x[(long long)(row - ago) * columns + column]);
        set(out[(long long)row * columns + column], sum);
    });
}

template <class T>
__device__ void convolve_back(const T* gradient, const float* factors, const int* places, T* to, int add, int rows,
                              int columns, int taps) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        int reach = min(taps, places[rows + row] + 1);
        const float* own = factors + (long long)column * taps + taps - 1;
        float sum = 0;
        for (int later = 0; later < reach; later++) {
            sum += own[-later] * number(gradient[(long long)(row + later) * columns + column]);
        }
        give(to[(long long)row * columns + column], sum, add);
    });
}

// Computes the gradients of the weights: each output column is one tap of one input column.
template <class T>
__device__ void sum_taps(const T* x, const T* gradient, const int* places, int rows, int columns, int taps, int part,
                         float* parts) {
    sum_part<1>(rows, columns * taps, part, parts, [&](int row, int tap, float (&product)[1]) {
        int ago = taps - 1 - tap % taps;
        long long at = (long long)row * columns + tap / taps;
        product[0] = ago > places[row] ? 0 : number(gradient[at]) * number(x[at - (long long)ago * columns]);
    });
}

__device__ __forceinline__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

// Computes the logarithm of a decay, or the decay itself.
template <class T>
__device__ void decay(const T* x, const float* logs, const float* biases, T* out, int logarithm, int rows, int columns) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        long long at = (long long)row * columns + column;
        float exponent = -expf(logs[column]) * softplus(number(x[at]) + biases[column]);
        set(out[at], logarithm ? exponent : expf(exponent));
    });
}

// The gradients with respect to the input of softplus and to the logarithm of its factor.
struct Slopes {
    float along;
    float along_log;
};

template <class T>
__device__ __forceinline__ Slopes slopes(const T* x, const T* gradient, const float* logs, const float* biases,
                                         int logarithm, long long at, int column) {
    float factor = -expf(logs[column]), sum = number(x[at]) + biases[column], soft = softplus(sum);
    float steep = number(gradient[at]) * factor * (logarithm ? 1 : expf(factor * soft));
    return {steep / (1 + expf(-sum)), steep * soft};
}

template <class T>
__device__ void decay_back(const T* x, const T* gradient, const float* logs, const float* biases, T* to, int logarithm,
                           int add, int rows, int columns) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        long long at = (long long)row * columns + column;
        give(to[at], slopes(x, gradient, logs, biases, logarithm, at, column).along, add);
    });
}

// Computes the gradients of the logarithms of the factors, or of the biases.
template <class T>
__device__ void sum_slopes(const T* x, const T* gradient, const float* logs, const float* biases, int logarithm,
                           int of_log, int rows, int columns, int part, float* parts) {
    sum_part<1>(rows, columns, part, parts, [&](int row, int column, float (&slope)[1]) {
        Slopes own = slopes(x, gradient, logs, biases, logarithm, (long long)row * columns + column, column);
        slope[0] = of_log ? own.along_log : own.along;
    });
}

#define KERNELS(T, type)                                                                                              \
    ENTRY(convolve_##type, 256,                                                                                       \
          (const T* x, const float* factors, const int* places, T* out, int rows, int columns, int taps),             \
          convolve(x, factors, places, out, rows, columns, taps))                                                     \
    ENTRY(convolve_back_##type, 256,                                                                                  \
          (const T* gradient, const float* factors, const int* places, T* to, int add, int rows, int columns,         \
           int taps),                                                                                                 \
          convolve_back(gradient, factors, places, to, add, rows, columns, taps))                                     \
    ENTRY(sum_taps_##type, ROW_LANES* LANES,                                                                          \
          (const T* x, const T* gradient, const int* places, int rows, int columns, int taps, int part, float* parts), \
          sum_taps(x, gradient, places, rows, columns, taps, part, parts))                                            \
    ENTRY(decay_##type, 256,                                                                                          \
          (const T* x, const float* logs, const float* biases, T* out, int logarithm, int rows, int columns),         \
          decay(x, logs, biases, out, logarithm, rows, columns))                                                      \
    ENTRY(decay_back_##type, 256,                                                                                     \
          (const T* x, const T* gradient, const float* logs, const float* biases, T* to, int logarithm, int add,      \
           int rows, int columns),                                                                                    \
          decay_back(x, gradient, logs, biases, to, logarithm, add, rows, columns))                                   \
    ENTRY(sum_slopes_##type, ROW_LANES* LANES,                                                                        \
          (const T* x, const T* gradient, const float* logs, const float* biases, int logarithm, int of_log,          \
           int rows, int columns, int part, float* parts),                                                            \
          sum_slopes(x, gradient, logs, biases, logarithm, of_log, rows, columns, part, parts))
FOR_EACH_TYPE(KERNELS)
