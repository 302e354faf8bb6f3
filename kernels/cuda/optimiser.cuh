// What the kernels of all optimisers share: tensors, the parts of them that blocks take, and what is known of a step. It
// stays on the device, so that the whole step can be recorded once.
#pragma once

#include "common.cuh"

// As trainer/src/cuda/optimiser/layout.rs lays it out.
struct Tensor {
    float* numbers;
    // The same in the precision that products take; missing where that is floats.
    void* copy;
    float* gradient;
    // The tables that the CPU's optimiser keeps of it, in its order.
    void* slots[4];
    long long count;
    int rows;
    int columns;
    // What the rate and the decay of this tensor are multiplied by.
    float rate;
    float decay;
};

struct Step {
    // What the host says: of all optimisers, and of the one at hand, by place.
    double rate;
    double limit;
    double scale;
    // What share of the way the moving average of the numbers goes.
    double follow;
    double said[16];
    // What the device finds: the length of the scaled gradient, what gradients are multiplied by, and whether they are
    // finite. Where they are not, nothing is changed.
    double length;
    double factor;
    double finite;
};

// Some numbers of a tensor: those of a block.
struct Part {
    int tensor;
    int number;
};

#define PART_NUMBERS 16384
#define PART_THREADS 256

// The first number of a part, and how many there are.
__device__ __forceinline__ long long first_of(const Part& part) { return (long long)part.number * PART_NUMBERS; }

__device__ __forceinline__ int count_of(const Part& part, const Tensor& tensor) {
    return (int)min(tensor.count - first_of(part), (long long)PART_NUMBERS);
}

// What is `share` of the way from one number to another.
__device__ __forceinline__ float between(float from, float to, float share) {
    return share < 0.5f ? from + share * (to - from) : to - (to - from) * (1 - share);
}

// Gives a number and its copy.
template <class T> __device__ __forceinline__ void change(const Tensor& tensor, long long at, float now) {
    tensor.numbers[at] = now;
    if (tensor.copy) set(((T*)tensor.copy)[at], now);
}

// What Adam and its kin read of a step.
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

// The number after a step; both averages are changed.
__device__ __forceinline__ float adam_step(const Adam& adam, float number, float gradient, float& first, float& second) {
    gradient = gradient * adam.factor + adam.decay * number;
    first = between(first, gradient, adam.share);
    second = second * adam.stay + adam.come * gradient * gradient;
    return number * adam.keep - adam.far * first / (sqrtf(second) / adam.root + adam.epsilon);
}
