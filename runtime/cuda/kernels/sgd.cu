// SGD, with or without momentum.
#include "optimizer.cuh"

enum OfSgd { OF_DECAY, OF_MOMENTUM, OF_WEIGHT, OF_NESTEROV };

template <class T> __device__ void sgd(const Tensor* tensors, const Part* parts, const Step* step) {
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    float rate = (float)(step->learning_rate * tensor.lr_factor), decay = (float)(step->values[OF_DECAY] * tensor.weight_decay_factor);
    float factor = (float)step->factor, momentum = (float)step->values[OF_MOMENTUM];
    float gradient_weight = (float)step->values[OF_WEIGHT];
    bool nesterov = step->values[OF_NESTEROV] != 0, finite = step->finite != 0;
    float* velocities = (float*)tensor.slots[0];
    for_each_of_part(part, tensor, [&](long long at, auto size) {
        constexpr int COUNT = decltype(size)::value;
        float velocity[COUNT] = {}, numbers[COUNT], gradients[COUNT];
        if (velocities) read<COUNT>(velocity, velocities + at);
        read<COUNT>(numbers, tensor.data + at);
        take_gradients(tensor, at, gradients);
        if (!finite) return;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float gradient = gradients[i] * factor + decay * numbers[i];
            velocity[i] = velocity[i] * momentum + gradient_weight * gradient;
            if (velocities) gradient = nesterov ? gradient + momentum * velocity[i] : velocity[i];
            numbers[i] = numbers[i] - rate * gradient;
        }
        if (velocities) write<COUNT>(velocities + at, velocity);
        set_weights<T>(tensor, at, numbers);
    });
}

#define KERNELS(T, type)                                                                              \
    ENTRY(sgd_##type, PART_THREADS, (const Tensor* tensors, const Part* parts, const Step* step),     \
          sgd<T>(tensors, parts, step))
FOR_EACH_TYPE(KERNELS)
