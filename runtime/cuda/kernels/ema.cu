// Weight averaging (EMA): a second set of weights, in slot 0 of each tensor.
#include "optimizer.cuh"

// Runs after a step; does nothing if the step was skipped.
__device__ __forceinline__ void update(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    if (step->finite == 0) return;
    float weight = (float)step->ema_weight;
    float* averages = (float*)tensor.slots[0];
    for_each_of_part(part, tensor, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float average[COUNT], numbers[COUNT];
        read<COUNT>(average, averages + at);
        read<COUNT>(numbers, tensor.data + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++) average[i] = interpolate(average[i], numbers[i], weight);
        write<COUNT>(averages + at, average);
    });
}

// Swaps weights and averages; a second call restores them.
template <class T> __device__ void swap(const Tensor* tensors, const Part* parts) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    float* averages = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float number = tensor.data[at];
        set_weight<T>(tensor, at, averages[at]);
        averages[at] = number;
    }
}

ENTRY(ema_update, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),
      update(tensors, parts, step))

#define KERNELS(T, type)                                                             \
    ENTRY(ema_swap_##type, PART_THREADS, (const Tensor* tensors, const Part* parts), \
          swap<T>(tensors, parts))
FOR_EACH_TYPE(KERNELS)
