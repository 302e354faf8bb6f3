// First step of the backward pass of flash attention.
#include "common.cuh"

// delta = rowsum(dO ∘ O), as in FlashAttention-2 (arXiv:2307.08691). A warp computes one row and head.
template <class T>
__device__ void attention_delta(const T* out, const T* gradient, int out_width, int size, float* delta, int rows,
                                int heads) {
    int number_of = blockIdx.x * warps() + warp();
    if (number_of >= rows * heads) return;
    long long at = (long long)(number_of / heads) * out_width + number_of % heads * size;
    float sum = 0;
    for (int i = lane(); i < size; i += LANES) sum += to_f32(out[at + i]) * to_f32(gradient[at + i]);
    sum = warp_sum(sum);
    if (lane() == 0) delta[number_of] = sum;
}

#define KERNELS(T, type)                                                                                             \
    ENTRY(attention_delta_##type, 256,                                                                               \
          (const T* out, const T* gradient, int out_width, int size, float* delta, int rows, int heads),             \
          attention_delta(out, gradient, out_width, size, delta, rows, heads))
FOR_EACH_TYPE(KERNELS)
