// SGD, with or without momentum.
#include "optimizer.cuh"

enum OfSgd { OF_DECAY, OF_MOMENTUM, OF_WEIGHT, OF_NESTEROV };

template <class T> __device__ void sgd(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    float rate = (float)(step->learning_rate * tensor.lr_factor), decay = (float)(step->values[OF_DECAY] * tensor.weight_decay_factor);
    float factor = (float)step->factor, momentum = (float)step->values[OF_MOMENTUM];
    float gradient_weight = (float)step->values[OF_WEIGHT];
    bool nesterov = step->values[OF_NESTEROV] != 0, finite = step->finite != 0;
    float* velocities = (float*)tensor.slots[0];
    for (int i = threadIdx.x; i < count; i += PART_THREADS) {
        long long at = first_of(part) + i;
        float gradient = tensor.gradient[at], number = tensor.data[at];
        tensor.gradient[at] = 0;
        if (!finite) continue;
        gradient = gradient * factor + decay * number;
        if (velocities) {
            float velocity = velocities[at] * momentum + gradient_weight * gradient;
            velocities[at] = velocity;
            gradient = nesterov ? gradient + momentum * velocity : velocity;
        }
        set_weight<T>(tensor, at, number - rate * gradient);
    }
}

#define KERNELS(T, type)                                                                              \
    ENTRY(sgd_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          sgd<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
