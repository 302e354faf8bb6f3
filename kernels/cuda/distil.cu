// Knowledge distillation loss (arXiv:1503.02531): KL divergence from the teacher's softmax, both at a
// temperature, plus cross-entropy with the target; the gradient overwrites the logits.
#include "common.cuh"

#define THREADS 512

__device__ __forceinline__ float most_of_block(float x, float* parts) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) x = max(x, across(x, mask));
    if (lane() == 0) parts[warp()] = x;
    meet();
    for (int i = 0; i < warps(); i++) x = max(x, parts[i]);
    meet();
    return x;
}

// A block handles one row; rows have stride `width`, those of the teacher `columns`. `share` is the weight of
// the teacher's term. Row n of `results` receives loss, weight and accuracy; loss and accuracy are multiplied
// by the weight.
template <class T>
__device__ void distil(T* outputs, const int* ids, const float* weights, const float* teachers, float temperature,
                       float share, const double* scale, float* results, int columns, int width, int back) {
    __shared__ float of_warps[THREADS / LANES];
    int row = blockIdx.x, id = ids[row];
    float weight = weights[row];
    T* x = outputs + (long long)row * width;
    const float* teacher = teachers + (long long)row * columns;
    if (weight == 0) {
        for (int i = threadIdx.x; back && i < columns; i += blockDim.x) set(x[i], 0);
        if (threadIdx.x < 3) results[3 * row + threadIdx.x] = 0;
        return;
    }
    float most = -infinity(), of_teacher = -infinity();
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        most = max(most, number(x[i]));
        of_teacher = max(of_teacher, teacher[i]);
    }
    most = most_of_block(most, of_warps);
    of_teacher = most_of_block(of_teacher, of_warps);
    float sum = 0, soft = 0, wanted = 0, before = 0, of_id = number(x[id]);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float own = number(x[i]) - most;
        sum += expf(own);
        soft += expf(own / temperature);
        wanted += expf((teacher[i] - of_teacher) / temperature);
        before += i < id && own == 0 ? 1 : 0;
    }
    sum = sum_of_block(sum, of_warps);
    soft = logf(sum_of_block(soft, of_warps));
    wanted = logf(sum_of_block(wanted, of_warps));
    before = sum_of_block(before, of_warps);
    float factor = weight * (float)*scale, apart = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float plain = number(x[i]) - most;
        float own = plain / temperature - soft, want = (teacher[i] - of_teacher) / temperature - wanted;
        apart += expf(want) * (want - own);
        float hard = expf(plain) / sum - (i == id ? 1 : 0);
        if (back) set(x[i], ((1 - share) * hard + share * temperature * (expf(own) - expf(want))) * factor);
    }
    apart = sum_of_block(apart, of_warps);
    if (threadIdx.x > 0) return;
    float loss = (1 - share) * (most + logf(sum) - of_id) + share * temperature * temperature * apart;
    results[3 * row] = loss * weight;
    results[3 * row + 1] = weight;
    results[3 * row + 2] = of_id == most && before == 0 ? weight : 0;
}

#define KERNELS(T, type)                                                                                              \
    ENTRY(distil_##type, THREADS,                                                                                     \
          (T* outputs, const int* ids, const float* weights, const float* teachers, float temperature, float share,   \
           const double* scale, float* results, int columns, int width, int back),                                    \
          distil(outputs, ids, weights, teachers, temperature, share, scale, results, columns, width, back))
FOR_EACH_TYPE(KERNELS)
