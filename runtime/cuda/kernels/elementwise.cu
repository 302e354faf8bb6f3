// Element-wise functions: activations, gates, sums, factors.
#include "common.cuh"

// Numbered as in src/pointwise.rs.
enum Function { SILU, GELU, GELU_TANH, RELU, SIGMOID, ELU_PLUS_ONE, SCALE, SOFTCAP, CLAMP };

struct ValueAndDerivative {
    float value;
    float derivative;
};

__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

// Returns a function's value and derivative.
__device__ __forceinline__ ValueAndDerivative apply(int function, float parameter, float x) {
    switch (function) {
    case SILU: {
        float s = sigmoid(x);
        return {x * s, s * (1 + x * (1 - s))};
    }
    case GELU: {
        float below = 0.5f * (1 + erff(x * 0.70710678f));
        float density = 0.39894228f * expf(-0.5f * x * x);
        return {x * below, below + x * density};
    }
    case GELU_TANH: {
        float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
        float inner = 0.79788456f * (1 + 3 * 0.044715f * x * x);
        return {0.5f * x * (1 + t), 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner};
    }
    case RELU: return x > 0 ? ValueAndDerivative{x, 1} : ValueAndDerivative{0, 0};
    case SIGMOID: {
        float s = sigmoid(x);
        return {s, s * (1 - s)};
    }
    case ELU_PLUS_ONE: {
        if (x > 0) return {x + 1, 1};
        float e = expf(x);
        return {e, e};
    }
    case SCALE: return {x * parameter, parameter};
    case SOFTCAP: {
        float t = tanhf(x / parameter);
        return {parameter * t, 1 - t * t};
    }
    default: return x > parameter ? ValueAndDerivative{parameter, 0} : x < -parameter ? ValueAndDerivative{-parameter, 0} : ValueAndDerivative{x, 1};
    }
}

// Calls `work` with the function as a type, so that loops select the function only once.
template <class Work> __device__ __forceinline__ void with_function(int function, Work work) {
    switch (function) {
    case SILU: return work(IntConstant<SILU>());
    case GELU: return work(IntConstant<GELU>());
    case GELU_TANH: return work(IntConstant<GELU_TANH>());
    case RELU: return work(IntConstant<RELU>());
    case SIGMOID: return work(IntConstant<SIGMOID>());
    case ELU_PLUS_ONE: return work(IntConstant<ELU_PLUS_ONE>());
    case SCALE: return work(IntConstant<SCALE>());
    case SOFTCAP: return work(IntConstant<SOFTCAP>());
    default: return work(IntConstant<CLAMP>());
    }
}

template <class T>
__device__ void activate(int function, float parameter, const T* x, T* out, long long count) {
    with_function(function, [&](auto chosen) {
        constexpr int FUNCTION = decltype(chosen)::value;
        for_each_element<T>(count, is_aligned(x, 0) && is_aligned(out, 0), [&](long long at, auto size) {
            constexpr int COUNT = decltype(size)::value;
            float numbers[COUNT];
            read<COUNT>(numbers, x + at);
#pragma unroll
            for (int i = 0; i < COUNT; i++) numbers[i] = apply(FUNCTION, parameter, numbers[i]).value;
            write<COUNT>(out + at, numbers);
        });
    });
}

template <class T>
__device__ void activate_backward(int function, float parameter, const T* x, const T* gradient, T* to, int add,
                              long long count) {
    bool aligned = is_aligned(x, 0) && is_aligned(gradient, 0) && is_aligned(to, 0);
    with_function(function, [&](auto chosen) {
        constexpr int FUNCTION = decltype(chosen)::value;
        for_each_element<T>(count, aligned, [&](long long at, auto size) {
            constexpr int COUNT = decltype(size)::value;
            float numbers[COUNT], grad[COUNT];
            read<COUNT>(numbers, x + at);
            read<COUNT>(grad, gradient + at);
#pragma unroll
            for (int i = 0; i < COUNT; i++) grad[i] *= apply(FUNCTION, parameter, numbers[i]).derivative;
            store_or_accumulate<COUNT>(to + at, grad, add);
        });
    });
}

struct GateDerivatives {
    float value;
    float by_gate;
    float by_up;
};

// Computes `activation(gate) · up`; with a limit, `g · sigmoid(slope · g) · (u + 1)` of the clamped gate and
// up.
__device__ __forceinline__ GateDerivatives apply_gate(int function, float limit, float slope, float gate, float up) {
    if (limit == 0) {
        ValueAndDerivative of_gate = apply(function, 0, gate);
        return {of_gate.value * up, of_gate.derivative * up, of_gate.value};
    }
    float g = min(gate, limit), gate_passes = gate > limit ? 0 : 1;
    float u = max(min(up, limit), -limit), up_passes = up > limit || up < -limit ? 0 : 1;
    float s = sigmoid(slope * g);
    float derivative = s + g * slope * s * (1 - s);
    return {g * s * (u + 1), gate_passes * derivative * (u + 1), up_passes * g * s};
}

template <class T>
__device__ void gate(int function, float limit, float slope, const T* gates, const T* ups, T* out, long long count) {
    bool aligned = is_aligned(gates, 0) && is_aligned(ups, 0) && is_aligned(out, 0);
    for_each_element<T>(count, aligned, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT], y[COUNT];
        read<COUNT>(x, gates + at);
        read<COUNT>(y, ups + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] = apply_gate(function, limit, slope, x[i], y[i]).value;
        write<COUNT>(out + at, x);
    });
}

// Either gradient output may be null.
template <class T>
__device__ void gate_backward(int function, float limit, float slope, const T* gates, const T* ups, const T* gradient,
                          T* to_gates, T* to_ups, int add_gates, int add_ups, long long count) {
    bool aligned = is_aligned(gates, 0) && is_aligned(ups, 0) && is_aligned(gradient, 0);
    aligned = aligned && is_aligned(to_gates, 0) && is_aligned(to_ups, 0);
    for_each_element<T>(count, aligned, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT], y[COUNT], grad[COUNT];
        read<COUNT>(x, gates + at);
        read<COUNT>(y, ups + at);
        read<COUNT>(grad, gradient + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            GateDerivatives of_both = apply_gate(function, limit, slope, x[i], y[i]);
            x[i] = grad[i] * of_both.by_gate;
            y[i] = grad[i] * of_both.by_up;
        }
        if (to_gates) store_or_accumulate<COUNT>(to_gates + at, x, add_gates);
        if (to_ups) store_or_accumulate<COUNT>(to_ups + at, y, add_ups);
    });
}

template <class T> __device__ void add(const T* a, const T* b, T* out, long long count) {
    for_each_element<T>(count, is_aligned(a, 0) && is_aligned(b, 0) && is_aligned(out, 0), [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT], y[COUNT];
        read<COUNT>(x, a + at);
        read<COUNT>(y, b + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++) x[i] += y[i];
        write<COUNT>(out + at, x);
    });
}

// Copies, or accumulates if `add`.
template <class T> __device__ void copy_or_accumulate(const T* from, T* to, int add, long long count) {
    for_each_element<T>(count, is_aligned(from, 0) && is_aligned(to, 0), [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float x[COUNT];
        read<COUNT>(x, from + at);
        store_or_accumulate<COUNT>(to + at, x, add);
    });
}

// Multiplies each element by the factor of its column, and adds the bias of its column if there is one.
template <class T>
__device__ void affine(const T* x, const float* factors, const float* biases, T* out, int add, int rows, int columns) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        long long at = (long long)row * columns + column;
        float sum = to_f32(x[at]) * factors[column] + (biases ? biases[column] : 0);
        store_or_accumulate(out[at], sum, add);
    });
}

#define KERNELS(T, type)                                                                                          \
    ENTRY(activate_##type, 256, (int function, float parameter, const T* x, T* out, long long count),             \
          activate(function, parameter, x, out, count))                                                           \
    ENTRY(activate_backward_##type, 256,                                                                              \
          (int function, float parameter, const T* x, const T* gradient, T* to, int add, long long count),        \
          activate_backward(function, parameter, x, gradient, to, add, count))                                        \
    ENTRY(gate_##type, 256,                                                                                       \
          (int function, float limit, float slope, const T* gates, const T* ups, T* out, long long count),        \
          gate(function, limit, slope, gates, ups, out, count))                                                   \
    ENTRY(gate_backward_##type, 256,                                                                                  \
          (int function, float limit, float slope, const T* gates, const T* ups, const T* gradient, T* to_gates,  \
           T* to_ups, int add_gates, int add_ups, long long count),                                               \
          gate_backward(function, limit, slope, gates, ups, gradient, to_gates, to_ups, add_gates, add_ups, count))   \
    ENTRY(add_##type, 256, (const T* a, const T* b, T* out, long long count), add(a, b, out, count))              \
    ENTRY(copy_or_accumulate_##type, 256, (const T* from, T* to, int add, long long count), copy_or_accumulate(from, to, add, count))   \
    ENTRY(affine_##type, 256,                                                                                     \
          (const T* x, const float* factors, const float* biases, T* out, int add, int rows, int columns),         \
          affine(x, factors, biases, out, add, rows, columns))
FOR_EACH_TYPE(KERNELS)
