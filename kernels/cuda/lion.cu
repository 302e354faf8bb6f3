// Lion (arXiv:2302.06675): steps of fixed magnitude, in the direction of the sign of a running average.
#include "optimizer.cuh"

enum OfLion { AHEAD_STAY, AHEAD_COME, BEHIND_STAY, BEHIND_COME, OF_DECAY };

template <class T> __device__ void lion(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    double whole_rate = step->rate * tensor.rate;
    float rate = (float)whole_rate, keep = (float)(1 - whole_rate * step->said[OF_DECAY] * tensor.decay);
    float factor = (float)step->factor;
    float ahead_stay = (float)step->said[AHEAD_STAY], ahead_come = (float)step->said[AHEAD_COME];
    float behind_stay = (float)step->said[BEHIND_STAY], behind_come = (float)step->said[BEHIND_COME];
    bool finite = step->finite != 0;
    float* averages = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at] * factor;
        tensor.gradient[at] = 0;
        if (!finite) continue;
        float average = averages[at], direction = average * ahead_stay + gradient * ahead_come;
        float sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
        averages[at] = average * behind_stay + gradient * behind_come;
        change<T>(tensor, at, tensor.numbers[at] * keep - rate * sign);
    }
}

#define KERNELS(T, type)                                                                               \
    ENTRY(lion_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          lion<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
