// Adam and AdamW (arXiv:1711.05101): running averages of gradients and squared gradients, in f32.
#include "optimizer.cuh"

template <class T> __device__ void adamw(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    const Adam adam = adam_of(step, tensor);
    bool finite = step->finite != 0;
    float* firsts = (float*)tensor.slots[0];
    float* seconds = (float*)tensor.slots[1];
    for_each_of_part(part, tensor, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float first[COUNT], second[COUNT], numbers[COUNT], gradients[COUNT];
        // All loads come before the first store, which the compiler cannot prove to be elsewhere.
        read<COUNT>(first, firsts + at);
        read<COUNT>(second, seconds + at);
        read<COUNT>(numbers, tensor.data + at);
        take_gradients(tensor, at, gradients);
        if (!finite) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) numbers[i] = adam_step(adam, numbers[i], gradients[i], first[i], second[i]);
        write<COUNT>(firsts + at, first);
        write<COUNT>(seconds + at, second);
        set_weights<T>(tensor, at, numbers);
    });
}

#define KERNELS(T, type)                                                                                  \
    ENTRY(adamw_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          adamw<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
