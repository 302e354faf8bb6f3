// SGD, with or without momentum.
#include "optimizer.cuh"

enum OfSgd { OF_DECAY, OF_MOMENTUM, OF_SHARE, OF_NESTEROV };

template <class T> __device__ void sgd(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    float rate = (float)(step->rate * tensor.rate), decay = (float)(step->said[OF_DECAY] * tensor.decay);
    float factor = (float)step->factor, momentum = (float)step->said[OF_MOMENTUM];
    float share = (float)step->said[OF_SHARE];
    bool nesterov = step->said[OF_NESTEROV] != 0, finite = step->finite != 0;
    float* velocities = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at], number = tensor.numbers[at];
        tensor.gradient[at] = 0;
        if (!finite) continue;
        gradient = gradient * factor + decay * number;
        if (velocities) {
            float velocity = velocities[at] * momentum + share * gradient;
            velocities[at] = velocity;
            gradient = nesterov ? gradient + momentum * velocity : velocity;
        }
        change<T>(tensor, at, number - rate * gradient);
    }
}

#define KERNELS(T, type)                                                                              \
    ENTRY(sgd_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          sgd<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
