// Shared by all optimizer kernels: tensors, the parts of them that blocks process, and the state of a step.
// The state stays on the device, so that the whole step can be recorded in a CUDA graph.
#pragma once

#include "common.cuh"

// Layout as in trainer/src/cuda/optimizer/layout.rs.
struct Tensor {
    float* numbers;
    // A copy in the precision of matmuls; null if that is f32.
    void* copy;
    float* gradient;
    // The state tensors of the CPU optimizer, in its order.
    void* slots[4];
    long long count;
    int rows;
    int columns;
    // Multipliers of the learning rate and the weight decay of this tensor.
    float rate;
    float decay;
};

struct Step {
    // Set by the host: values for all optimizers, then those of the current one, by index.
    double rate;
    double limit;
    double scale;
    // Interpolation weight of the moving average of the weights (EMA).
    double follow;
    double said[16];
    // Computed on the device: the norm of the scaled gradient, the factor on gradients, and whether they are
    // finite. If they are not, the step changes nothing.
    double length;
    double factor;
    double finite;
};

// The elements of a tensor that a block processes.
struct Part {
    int tensor;
    int number;
};

#define PART_NUMBERS 16384
#define PART_THREADS 256

// The first element of a part, and the number of elements.
__device__ __forceinline__ long long first_of(const Part& part) { return (long long)part.number * PART_NUMBERS; }

__device__ __forceinline__ int count_of(const Part& part, const Tensor& tensor) {
    return (int)min(tensor.count - first_of(part), (long long)PART_NUMBERS);
}

// Linear interpolation: returns `from + share · (to - from)`.
__device__ __forceinline__ float between(float from, float to, float share) {
    return share < 0.5f ? from + share * (to - from) : to - (to - from) * (1 - share);
}

// Writes a weight and its low-precision copy.
template <class T> __device__ __forceinline__ void change(const Tensor& tensor, long long at, float now) {
    tensor.numbers[at] = now;
    if (tensor.copy) set(((T*)tensor.copy)[at], now);
}

// Indices of the step values of Adam and related optimizers.
enum OfMoments { SHARE, STAY, COME, ROOT, EPSILON, CORRECTION, DECAY, DECOUPLED };

struct Adam {
    float factor;
    float keep;
    float decay;
    float far;
    float share;
    float stay;
    float come;
    float root;
    float epsilon;
};

__device__ __forceinline__ Adam adam_of(const Step* step, const Tensor& tensor) {
    double rate = step->rate * tensor.rate, decay = step->said[DECAY] * tensor.decay;
    bool decoupled = step->said[DECOUPLED] != 0;
    return {(float)step->factor,
            decoupled ? (float)(1 - rate * decay) : 1,
            decoupled ? 0 : (float)decay,
            (float)(rate / step->said[CORRECTION]),
            (float)step->said[SHARE],
            (float)step->said[STAY],
            (float)step->said[COME],
            (float)step->said[ROOT],
            (float)step->said[EPSILON]};
}

// Returns the weight after a step; updates both averages.
__device__ __forceinline__ float adam_step(const Adam& adam, float number, float gradient, float& first, float& second) {
    gradient = gradient * adam.factor + adam.decay * number;
    first = between(first, gradient, adam.share);
    second = second * adam.stay + adam.come * gradient * gradient;
    return number * adam.keep - adam.far * first / (sqrtf(second) / adam.root + adam.epsilon);
}
