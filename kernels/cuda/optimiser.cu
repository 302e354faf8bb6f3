// The length of all gradients together, and AdamW for all tensors in one launch. What a step needs to know stays on the
// device, so that the whole step can be recorded once.
#include "common.cuh"

// As trainer/src/cuda/optimiser.rs lays it out.
struct Tensor {
    float* numbers;
    // The same as 16-bit numbers; missing where the model computes with floats.
    void* copy;
    float* gradient;
    float* first;
    float* second;
    long long count;
    // What the rate and the decay of this tensor are multiplied by.
    float rate;
    float decay;
};

struct Step {
    // What the host says.
    double rate;
    double limit;
    double scale;
    double beta1;
    double beta2;
    double epsilon;
    double decay;
    // What the device finds: the length of the scaled gradient, the number of good steps, and what follows from it.
    double length;
    double count;
    double correction;
    double root;
    double factor;
    double finite;
};

// Some numbers of a tensor: those of a block.
struct Part {
    int tensor;
    int number;
};

#define PART 16384
#define THREADS 256

__device__ __forceinline__ void squares(const Tensor* tensors, const Part* parts, double* sums) {
    __shared__ double of_warps[THREADS / LANES];
    const Tensor tensor = tensors[parts[blockIdx.x].tensor];
    long long first = (long long)parts[blockIdx.x].number * PART;
    int count = (int)min(tensor.count - first, (long long)PART);
    const float* gradient = tensor.gradient + first;
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += (double)gradient[i] * gradient[i];
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// In one block. A step whose gradients are not finite does not count.
__device__ __forceinline__ void judge(const double* sums, int count, Step* step) {
    __shared__ double of_warps[THREADS / LANES];
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += sums[i];
    sum = sum_of_block(sum, of_warps);
    if (threadIdx.x > 0) return;
    bool finite = isfinite(sum);
    double length = sqrt(sum);
    double shorter = step->limit > 0 ? step->limit / (length / step->scale + 1e-6) : 1;
    step->length = length;
    step->finite = finite ? 1 : 0;
    step->factor = (shorter < 1 ? shorter : 1) / step->scale;
    step->count += finite ? 1 : 0;
    step->correction = 1 - pow(step->beta1, step->count);
    step->root = sqrt(1 - pow(step->beta2, step->count));
}

// What is `share` of the way from one number to another.
__device__ __forceinline__ float between(float from, float to, float share) {
    return share < 0.5f ? from + share * (to - from) : to - (to - from) * (1 - share);
}

// Changes numbers, averages and copies, and makes the gradients zero for the next step.
template <class T>
__device__ __forceinline__ void adamw(const Tensor* tensors, const Part* parts, const Step* step) {
    const Tensor tensor = tensors[parts[blockIdx.x].tensor];
    long long first = (long long)parts[blockIdx.x].number * PART;
    int count = (int)min(tensor.count - first, (long long)PART);
    double rate = step->rate * tensor.rate;
    float keep = (float)(1 - rate * step->decay * tensor.decay);
    float factor = (float)step->factor, root = (float)step->root, epsilon = (float)step->epsilon;
    float far = (float)(rate / step->correction), share = (float)(1 - step->beta1);
    float stay = (float)step->beta2, come = (float)(1 - step->beta2);
    bool finite = step->finite != 0;
    T* copy = (T*)tensor.copy;
    for (int i = threadIdx.x; i < count; i += THREADS) {
        long long at = first + i;
        float gradient = tensor.gradient[at] * factor;
        tensor.gradient[at] = 0;
        if (!finite) continue;
        float average = between(tensor.first[at], gradient, share);
        float square = tensor.second[at] * stay + come * gradient * gradient;
        float now = tensor.numbers[at] * keep - far * average / (sqrtf(square) / root + epsilon);
        tensor.first[at] = average;
        tensor.second[at] = square;
        tensor.numbers[at] = now;
        if (copy) set(copy[at], now);
    }
}

ENTRY(squares_of_all, THREADS, (const Tensor* tensors, const Part* parts, double* sums), squares(tensors, parts, sums))
ENTRY(judge_step, THREADS, (const double* sums, int count, Step* step), judge(sums, count, step))

#define KERNELS(T, type)                                                                         \
    ENTRY(adamw_##type, THREADS, (const Tensor* tensors, const Part* parts, const Step* step),   \
          adamw<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
