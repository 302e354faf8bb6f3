// Knowledge distillation loss (arXiv:1503.02531): KL divergence from the teacher's softmax, both at a
// temperature, plus cross-entropy with the target; the gradient overwrites the logits.
#include "common.cuh"

#define THREADS 512

__device__ __forceinline__ float block_max(float x, float* parts) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = max(x, shuffle_xor(x, mask));
    if (lane() == 0) parts[warp()] = x;
    sync_block();
    for (int i = 0; i < warps(); i++) x = max(x, parts[i]);
    sync_block();
    return x;
}

// A block handles one row; rows have stride `width`, those of the teacher `columns`. `kd_ratio` is the weight of
// the teacher's term. Row n of `results` receives loss, weight and accuracy; loss and accuracy are multiplied
// by the weight.
template <class T>
__device__ void distillation(T* outputs, const int* ids, const float* weights, const float* teachers, float temperature,
                       float kd_ratio, const double* scale, float* results, int columns, int width, int back) {
    __shared__ float of_warps[THREADS / LANES];
    int row = blockIdx.x, id = ids[row];
    float weight = weights[row];
    T* x = outputs + (long long)row * width;
    const float* teacher = teachers + (long long)row * columns;
    if (weight == 0) {
        for (int i = threadIdx.x; back && i < columns; i += blockDim.x) from_f32(x[i], 0);
        if (threadIdx.x < 3) results[3 * row + threadIdx.x] = 0;
        return;
    }
    float maximum = -infinity(), of_teacher = -infinity();
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        maximum = max(maximum, to_f32(x[i]));
        of_teacher = max(of_teacher, teacher[i]);
    }
    maximum = block_max(maximum, of_warps);
    of_teacher = block_max(of_teacher, of_warps);
    float sum = 0, soft = 0, wanted = 0, before = 0, of_id = to_f32(x[id]);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float own = to_f32(x[i]) - maximum;
        sum += expf(own);
        soft += expf(own / temperature);
        wanted += expf((teacher[i] - of_teacher) / temperature);
        before += i < id && own == 0 ? 1 : 0;
    }
    sum = block_sum(sum, of_warps);
    soft = logf(block_sum(soft, of_warps));
    wanted = logf(block_sum(wanted, of_warps));
    before = block_sum(before, of_warps);
    float factor = weight * (float)*scale, divergence = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float plain = to_f32(x[i]) - maximum;
        float own = plain / temperature - soft, want = (teacher[i] - of_teacher) / temperature - wanted;
        divergence += expf(want) * (want - own);
        float hard = expf(plain) / sum - (i == id ? 1 : 0);
        if (back) from_f32(x[i], ((1 - kd_ratio) * hard + kd_ratio * temperature * (expf(own) - expf(want))) * factor);
    }
    divergence = block_sum(divergence, of_warps);
    if (threadIdx.x > 0) return;
    float loss = (1 - kd_ratio) * (maximum + logf(sum) - of_id) + kd_ratio * temperature * temperature * divergence;
    results[3 * row] = loss * weight;
    results[3 * row + 1] = weight;
    results[3 * row + 2] = of_id == maximum && before == 0 ? weight : 0;
}

#define KERNELS(T, type)                                                                                              \
    ENTRY(distillation_##type, THREADS,                                                                                     \
          (T* outputs, const int* ids, const float* weights, const float* teachers, float temperature, float kd_ratio,   \
           const double* scale, float* results, int columns, int width, int back),                                    \
          distillation(outputs, ids, weights, teachers, temperature, kd_ratio, scale, results, columns, width, back))
FOR_EACH_TYPE(KERNELS)
