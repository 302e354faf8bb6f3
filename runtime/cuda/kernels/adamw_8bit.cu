// 8-bit AdamW (arXiv:2110.02861): both averages are quantized to one byte per element, with a scale per block
// of 256.
#include "optimizer.cuh"

#define BLOCK 256
#define OF_LANE (BLOCK / LANES)

// The values that the codes stand for, and the midpoints interpolate adjacent ones.
struct Codebook {
    float data[256];
    float midpoints[256];
};

// Binary search: counts the midpoints below x, which is the nearest code.
__device__ __forceinline__ unsigned char nearest(const Codebook& codes, float x) {
    int below = 0;
#pragma unroll
    for (int step = 128; step > 0; step /= 2) {
        if (codes.midpoints[below + step - 1] < x) below += step;
    }
    return (unsigned char)below;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = max(x, shuffle_xor(x, mask));
    return x;
}

// Quantizes the elements of a warp's block; returns the scale to every lane.
__device__ __forceinline__ float quantize(const Codebook& codes, const float (&numbers)[OF_LANE], unsigned char* bytes,
                                             int count) {
    float maximum = 0;
#pragma unroll
    for (int i = 0; i < OF_LANE; i++) maximum = max(maximum, fabsf(numbers[i]));
    float scale = warp_max(maximum), divisor = scale > 0 ? scale : 1;
#pragma unroll
    for (int i = 0; i < OF_LANE; i++) {
        int at = i * LANES + lane();
        if (at < count) bytes[at] = nearest(codes, numbers[i] / divisor);
    }
    return scale;
}

// `codes` has the codebook of the first average, which is signed, and that of the second.
template <class T>
__device__ void adamw_8bit(const Tensor* tensors, const Part* parts, const Step* step, const Codebook* codes) {
    __shared__ Codebook own[2];
    const Part part = parts[blockIdx.x];
    const Tensor tensor = tensors[part.tensor];
    int count = count_of(part, tensor);
    for (int i = threadIdx.x; i < 1024; i += PART_THREADS) ((float*)own)[i] = ((const float*)codes)[i];
    sync_block();
    const Adam adam = adam_of(step, tensor);
    bool finite = step->finite != 0;
    for (int block = warp(); block * BLOCK < count; block += PART_THREADS / LANES) {
        long long start = first_of(part) + block * BLOCK;
        int left = min(count - block * BLOCK, BLOCK);
        unsigned char* bytes[2] = {(unsigned char*)tensor.slots[0] + start, (unsigned char*)tensor.slots[1] + start};
        float* scales[2] = {(float*)tensor.slots[2] + start / BLOCK, (float*)tensor.slots[3] + start / BLOCK};
        float of_first = *scales[0], of_second = *scales[1], first[OF_LANE], second[OF_LANE];
#pragma unroll
        for (int i = 0; i < OF_LANE; i++) {
            int at = i * LANES + lane();
            first[i] = second[i] = 0;
            if (at >= left) continue;
            float gradient = tensor.gradient[start + at];
            tensor.gradient[start + at] = 0;
            if (!finite) continue;
            first[i] = own[0].data[bytes[0][at]] * of_first;
            second[i] = own[1].data[bytes[1][at]] * of_second;
            float now = adam_step(adam, tensor.data[start + at], gradient, first[i], second[i]);
            set_weight<T>(tensor, start + at, now);
        }
        if (!finite) continue;
        of_first = quantize(own[0], first, bytes[0], left);
        of_second = quantize(own[1], second, bytes[1], left);
        sync_warp();
        if (lane() == 0) {
            *scales[0] = of_first;
            *scales[1] = of_second;
        }
    }
}

#define KERNELS(T, type)                                                                                       \
    ENTRY(adamw_8bit_##type, PART_THREADS,                                                                         \
          (const Tensor* tensors, const Part* parts, const Step* step, const Codebook* codes),                    \
          adamw_8bit<T>(tensors, parts, step, codes))
FOR_EACH_TYPE(KERNELS)
