// Adam and AdamW (arXiv:1711.05101): running averages of gradients and squared gradients, in f32.
#include "optimizer.cuh"

template <class T> __device__ void moments(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    const Adam adam = adam_of(step, tensor);
    bool finite = step->finite != 0;
    float* firsts = (float*)tensor.slots[0];
    float* seconds = (float*)tensor.slots[1];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at];
        tensor.gradient[at] = 0;
        if (!finite) continue;
        float first = firsts[at], second = seconds[at];
        float now = adam_step(adam, tensor.data[at], gradient, first, second);
        firsts[at] = first;
        seconds[at] = second;
        set_weight<T>(tensor, at, now);
    }
}

#define KERNELS(T, type)                                                                                  \
    ENTRY(moments_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          moments<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
