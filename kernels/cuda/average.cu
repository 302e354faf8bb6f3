// Weight averaging (EMA): a second set of weights, in slot 0 of each tensor.
#include "optimizer.cuh"

// Runs after a step; does nothing if the step was skipped.
__device__ __forceinline__ void follow(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    int count = count_of(part, tensor);
    float share = (float)step->follow;
    float* averages = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        averages[at] = between(averages[at], tensor.numbers[at], share);
    }
}

// Swaps weights and averages; a second call restores them.
template <class T> __device__ void swap(const Tensor* tensors, const Part* parts) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    float* averages = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float number = tensor.numbers[at];
        change<T>(tensor, at, averages[at]);
        averages[at] = number;
    }
}

ENTRY(follow_numbers, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),
      follow(tensors, parts, step))

#define KERNELS(T, type)                                                             \
    ENTRY(swap_numbers_##type, PART_THREADS, (const Tensor* tensors, const Part* parts), \
          swap<T>(tensors, parts))
FOR_EACH_TYPE(KERNELS)
