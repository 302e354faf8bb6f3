// Lion (arXiv:2302.06675): steps of fixed magnitude, in the direction of the sign of a running average.
#include "optimizer.cuh"

enum OfLion { BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, OF_DECAY };

template <class T> __device__ void lion(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    double whole_rate = step->learning_rate * tensor.lr_factor;
    float rate = (float)whole_rate, keep = (float)(1 - whole_rate * step->values[OF_DECAY] * tensor.weight_decay_factor);
    float factor = (float)step->factor;
    float beta1 = (float)step->values[BETA1], one_minus_beta1 = (float)step->values[ONE_MINUS_BETA1];
    float beta2 = (float)step->values[BETA2], one_minus_beta2 = (float)step->values[ONE_MINUS_BETA2];
    bool finite = step->finite != 0;
    float* averages = (float*)tensor.slots[0];
    for_each_of_part(part, tensor, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float average[COUNT], numbers[COUNT], gradients[COUNT];
        read<COUNT>(average, averages + at);
        read<COUNT>(numbers, tensor.data + at);
        take_gradients(tensor, at, gradients);
        if (!finite) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float gradient = gradients[i] * factor;
            float direction = average[i] * beta1 + gradient * one_minus_beta1;
            float sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
            average[i] = average[i] * beta2 + gradient * one_minus_beta2;
            numbers[i] = numbers[i] * keep - rate * sign;
        }
        write<COUNT>(averages + at, average);
        set_weights<T>(tensor, at, numbers);
    });
}

#define KERNELS(T, type)                                                                               \
    ENTRY(lion_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          lion<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
