// Causal depthwise conv1d, and the decay gate of a recurrent state.
#include "sums.cuh"

// `factors` has `taps` weights for each column, the oldest first. `places` has the position of each row in
// its sequence, followed by the number of rows after each row.
template <class T>
__device__ void causal_conv1d(const T* x, const float* factors, const int* positions, T* out, int rows, int columns, int taps) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        int count = min(taps, positions[row] + 1);
        const float* own = factors + (long long)column * taps + taps - 1;
        float sum = 0;
        for (int ago = 0; ago < count; ago++) sum += own[-ago] * to_f32(x[(long long)(row - ago) * columns + column]);
        from_f32(out[(long long)row * columns + column], sum);
    });
}

template <class T>
__device__ void causal_conv1d_backward(const T* gradient, const float* factors, const int* positions, T* to, int add, int rows,
                              int columns, int taps) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        int count = min(taps, positions[rows + row] + 1);
        const float* own = factors + (long long)column * taps + taps - 1;
        float sum = 0;
        for (int later = 0; later < count; later++) {
            sum += own[-later] * to_f32(gradient[(long long)(row + later) * columns + column]);
        }
        store_or_accumulate(to[(long long)row * columns + column], sum, add);
    });
}

// Computes the gradients of the weights: each output column is one tap of one input column.
template <class T>
__device__ void causal_conv1d_weights_backward(const T* x, const T* gradient, const int* positions, int rows, int columns, int taps, int part,
                         float* parts) {
    sum_part<1>(rows, columns * taps, part, parts, [&](int row, int tap, float (&product)[1]) {
        int ago = taps - 1 - tap % taps;
        long long at = (long long)row * columns + tap / taps;
        product[0] = ago > positions[row] ? 0 : to_f32(gradient[at]) * to_f32(x[at - (long long)ago * columns]);
    });
}

__device__ __forceinline__ float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

// Computes the logarithm of a decay, or the decay itself.
template <class T>
__device__ void decay_gate(const T* x, const float* logs, const float* biases, T* out, int logarithm, int rows, int columns) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        long long at = (long long)row * columns + column;
        float exponent = -expf(logs[column]) * softplus(to_f32(x[at]) + biases[column]);
        from_f32(out[at], logarithm ? exponent : expf(exponent));
    });
}

// The gradients with respect to the input of softplus and to the logarithm of its factor.
struct DecayGateGradients {
    float by_input;
    float by_log;
};

template <class T>
__device__ __forceinline__ DecayGateGradients decay_gate_gradients(const T* x, const T* gradient, const float* logs, const float* biases,
                                         int logarithm, long long at, int column) {
    float factor = -expf(logs[column]), sum = to_f32(x[at]) + biases[column], soft = softplus(sum);
    float grad = to_f32(gradient[at]) * factor * (logarithm ? 1 : expf(factor * soft));
    return {grad / (1 + expf(-sum)), grad * soft};
}

template <class T>
__device__ void decay_gate_backward(const T* x, const T* gradient, const float* logs, const float* biases, T* to, int logarithm,
                           int add, int rows, int columns) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        long long at = (long long)row * columns + column;
        store_or_accumulate(to[at], decay_gate_gradients(x, gradient, logs, biases, logarithm, at, column).by_input, add);
    });
}

// Computes the gradients of the logarithms of the factors, or of the biases.
template <class T>
__device__ void decay_gate_weights_backward(const T* x, const T* gradient, const float* logs, const float* biases, int logarithm,
                           int of_log, int rows, int columns, int part, float* parts) {
    sum_part<1>(rows, columns, part, parts, [&](int row, int column, float (&gradient_of)[1]) {
        DecayGateGradients own = decay_gate_gradients(x, gradient, logs, biases, logarithm, (long long)row * columns + column, column);
        gradient_of[0] = of_log ? own.by_log : own.by_input;
    });
}

#define KERNELS(T, type)                                                                                                  \
    ENTRY(causal_conv1d_##type, 256,                                                                                      \
          (const T* x, const float* factors, const int* positions, T* out, int rows, int columns, int taps),              \
          causal_conv1d(x, factors, positions, out, rows, columns, taps))                                                 \
    ENTRY(causal_conv1d_backward_##type, 256,                                                                             \
          (const T* gradient, const float* factors, const int* positions, T* to, int add, int rows, int columns,          \
           int taps),                                                                                                     \
          causal_conv1d_backward(gradient, factors, positions, to, add, rows, columns, taps))                             \
    ENTRY(causal_conv1d_weights_backward_##type, ROW_LANES* LANES,                                                        \
          (const T* x, const T* gradient, const int* positions, int rows, int columns, int taps, int part, float* parts), \
          causal_conv1d_weights_backward(x, gradient, positions, rows, columns, taps, part, parts))                       \
    ENTRY(decay_gate_##type, 256,                                                                                         \
          (const T* x, const float* logs, const float* biases, T* out, int logarithm, int rows, int columns),             \
          decay_gate(x, logs, biases, out, logarithm, rows, columns))                                                     \
    ENTRY(decay_gate_backward_##type, 256,                                                                                \
          (const T* x, const T* gradient, const float* logs, const float* biases, T* to, int logarithm, int add,          \
           int rows, int columns),                                                                                        \
          decay_gate_backward(x, gradient, logs, biases, to, logarithm, add, rows, columns))                              \
    ENTRY(decay_gate_weights_backward_##type, ROW_LANES* LANES,                                                           \
          (const T* x, const T* gradient, const float* logs, const float* biases, int logarithm, int of_log,              \
           int rows, int columns, int part, float* parts),                                                                \
          decay_gate_weights_backward(x, gradient, logs, biases, logarithm, of_log, rows, columns, part, parts))
FOR_EACH_TYPE(KERNELS)
