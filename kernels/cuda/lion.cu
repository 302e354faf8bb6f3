// Lion (arXiv:2302.06675): steps of fixed magnitude, in the direction of the sign of a running average.
#include "optimizer.cuh"

enum OfLion { BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, OF_DECAY };

template <class T> __device__ void lion(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    double whole_rate = step->learning_rate * tensor.lr_factor;
    float rate = (float)whole_rate, keep = (float)(1 - whole_rate * step->values[OF_DECAY] * tensor.weight_decay_factor);
    float factor = (float)step->factor;
    float beta1 = (float)step->values[BETA1], one_minus_beta1 = (float)step->values[ONE_MINUS_BETA1];
    float beta2 = (float)step->values[BETA2], one_minus_beta2 = (float)step->values[ONE_MINUS_BETA2];
    bool finite = step->finite != 0;
    float* averages = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at] * factor;
        tensor.gradient[at] = 0;
        if (!finite) continue;
        float average = averages[at], direction = average * beta1 + gradient * one_minus_beta1;
        float sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
        averages[at] = average * beta2 + gradient * one_minus_beta2;
        set_weight<T>(tensor, at, tensor.data[at] * keep - rate * sign);
    }
}

#define KERNELS(T, type)                                                                               \
    ENTRY(lion_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          lion<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
