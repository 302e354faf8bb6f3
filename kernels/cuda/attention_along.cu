// First step of the backward pass of flash attention.
#include "common.cuh"

// delta = rowsum(dO ∘ O), as in FlashAttention-2 (arXiv:2307.08691). A warp computes one row and head.
template <class T>
__device__ void attention_along(const T* out, const T* gradient, int out_width, int size, float* along, int rows,
                                int heads) {
    int number_of = blockIdx.x * warps() + warp();
    if (number_of >= rows * heads) return;
    long long at = (long long)(number_of / heads) * out_width + number_of % heads * size;
    float sum = 0;
    for (int i = lane(); i < size; i += LANES) sum += number(out[at + i]) * number(gradient[at + i]);
    sum = sum_of_warp(sum);
    if (lane() == 0) along[number_of] = sum;
}

#define KERNELS(T, type)                                                                                             \
    ENTRY(attention_along_##type, 256,                                                                               \
          (const T* out, const T* gradient, int out_width, int size, float* along, int rows, int heads),             \
          attention_along(out, gradient, out_width, size, along, rows, heads))
FOR_EACH_TYPE(KERNELS)
