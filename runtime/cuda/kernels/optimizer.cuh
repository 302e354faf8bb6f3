// Shared by all optimizer kernels: tensors, the parts of them that blocks process, and the state of a step.
// The state stays on the device, so that the whole step can be recorded in a CUDA graph.
#pragma once

#include "common.cuh"

// Layout as in trainer/src/cuda/optimizer/layout.rs.
struct Tensor {
    float* data;
    // A copy in the precision of matmuls; null if that is f32.
    void* copy;
    float* gradient;
    // The state tensors of the CPU optimizer, in its order.
    void* slots[4];
    long long count;
    int rows;
    int columns;
    // Multipliers of the learning rate and the weight decay of this tensor.
    float lr_factor;
    float weight_decay_factor;
};

struct Step {
    // Set by the host: values for all optimizers, then those of the current one, by index.
    double learning_rate;
    double max_grad_norm;
    double loss_scale;
    // Interpolation weight of the moving average of the weights (EMA).
    double ema_weight;
    double values[16];
    // Computed on the device: the norm of the scaled gradient, the factor on gradients, and whether they are
    // finite. If they are not, the step changes nothing.
    double grad_norm;
    double factor;
    double finite;
};

// The elements of a tensor that a block processes.
struct Part {
    int tensor;
    int number;
};

#define PART_SIZE 16384
#define PART_THREADS 256

// The first element of a part, and the number of elements.
__device__ __forceinline__ long long first_of(const Part& part) { return (long long)part.number * PART_SIZE; }

__device__ __forceinline__ int count_of(const Part& part, const Tensor& tensor) {
    return (int)min(tensor.count - first_of(part), (long long)PART_SIZE);
}

// Linear interpolation: returns `from + t · (to - from)`.
__device__ __forceinline__ float interpolate(float from, float to, float t) {
    return t < 0.5f ? from + t * (to - from) : to - (to - from) * (1 - t);
}

// Calls work(first element, number of elements as a type) for the elements of a part, four at a time: a thread has
// loads of 16 bytes in flight. Tensors and their state tables are aligned to 16 bytes.
template <class Work>
__device__ __forceinline__ void for_each_of_part(const Part& part, const Tensor& tensor, Work work) {
    int count = count_of(part, tensor), packed = count / 4;
    for (int i = threadIdx.x; i < packed; i += PART_THREADS) work(first_of(part) + 4 * i, IntConstant<4>());
    for (int i = 4 * packed + threadIdx.x; i < count; i += PART_THREADS) work(first_of(part) + i, IntConstant<1>());
}

// Returns gradients, and zeroes them for the next step.
template <int COUNT>
__device__ __forceinline__ void take_gradients(const Tensor& tensor, long long at, float (&gradients)[COUNT]) {
    const float zeros[COUNT] = {};
    read<COUNT>(gradients, tensor.gradient + at);
    write<COUNT>(tensor.gradient + at, zeros);
}

// Writes weights and their low-precision copies.
template <class T, int COUNT>
__device__ __forceinline__ void set_weights(const Tensor& tensor, long long at, const float (&now)[COUNT]) {
    write<COUNT>(tensor.data + at, now);
    if (tensor.copy) write<COUNT>((T*)tensor.copy + at, now);
}

template <class T> __device__ __forceinline__ void set_weight(const Tensor& tensor, long long at, float now) {
    const float numbers[1] = {now};
    set_weights<T>(tensor, at, numbers);
}

// Indices of the step values of Adam and related optimizers.
enum OfMoments { FIRST_WEIGHT, SECOND_DECAY, SECOND_WEIGHT, INVERSE_ROOT, EPSILON, CORRECTION, DECAY, DECOUPLED };

struct Adam {
    float factor;
    float keep;
    float decay;
    float step_size;
    float first_weight;
    float second_decay;
    float second_weight;
    float inverse_root;
    float epsilon;
};

__device__ __forceinline__ Adam adam_of(const Step* step, const Tensor& tensor) {
    double rate = step->learning_rate * tensor.lr_factor, decay = step->values[DECAY] * tensor.weight_decay_factor;
    bool decoupled = step->values[DECOUPLED] != 0;
    return {(float)step->factor,
            decoupled ? (float)(1 - rate * decay) : 1,
            decoupled ? 0 : (float)decay,
            (float)(rate / step->values[CORRECTION]),
            (float)step->values[FIRST_WEIGHT],
            (float)step->values[SECOND_DECAY],
            (float)step->values[SECOND_WEIGHT],
            (float)step->values[INVERSE_ROOT],
            (float)step->values[EPSILON]};
}

// Returns the weight after a step; updates both averages. The quotient is approximate: exact division and square root
// would take several times as long as the memory accesses.
__device__ __forceinline__ float adam_step(const Adam& adam, float number, float gradient, float& first, float& second) {
    gradient = gradient * adam.factor + adam.decay * number;
    first = interpolate(first, gradient, adam.first_weight);
    second = second * adam.second_decay + adam.second_weight * gradient * gradient;
    float root = sqrt_approx(second) * adam.inverse_root;
    return number * adam.keep - divide_approx(adam.step_size * first, root + adam.epsilon);
}
