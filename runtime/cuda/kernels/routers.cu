// Auxiliary losses of MoE routers: load balancing (Switch, arXiv:2101.03961) and router z-loss
// (arXiv:2202.08906). The layers of a side (encoder or decoder) are accumulated together: for each expert the
// number of choices, for each expert the sum of probabilities, and the sum of squared log-sum-exps.
#include "common.cuh"

#define THREADS 256

// Set by the host: the coefficients of both losses, the factor on gradients, and the weight of the batch.
struct Routers {
    double aux_loss_coef;
    double z_loss_coef;
    double factor;
    double weight;
};

// Computes the log-sum-exp of a row's scores. A thread handles one row.
template <class T> __device__ void log_sum_exp(const T* scores, float* log_sum_exps, int rows, int experts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const T* own = scores + (long long)row * experts;
    float maximum = -infinity(), sum = 0;
    for (int i = 0; i < experts; i++) maximum = max(maximum, to_f32(own[i]));
    for (int i = 0; i < experts; i++) sum += expf(to_f32(own[i]) - maximum);
    log_sum_exps[row] = maximum + logf(sum);
}

// A block handles one expert; the one after the last accumulates the squares.
template <class T>
__device__ void accumulate_router(const T* scores, const T* routed, const float* log_sum_exps, double* sums, int rows, int experts,
                           int chosen) {
    __shared__ double of_warps[THREADS / LANES];
    int expert = blockIdx.x;
    double probabilities = 0, choices = 0;
    for (int row = threadIdx.x; row < rows; row += THREADS) {
        if (expert == experts) {
            probabilities += (double)log_sum_exps[row] * log_sum_exps[row];
            continue;
        }
        probabilities += expf(to_f32(scores[(long long)row * experts + expert]) - log_sum_exps[row]);
        const T* numbers = routed + (long long)row * 2 * chosen + chosen;
        for (int i = 0; i < chosen; i++) choices += (int)to_f32(numbers[i]) == expert ? 1 : 0;
    }
    probabilities = block_sum(probabilities, of_warps);
    choices = block_sum(choices, of_warps);
    if (threadIdx.x > 0) return;
    if (expert < experts) sums[expert] += choices;
    sums[experts + expert] += probabilities;
}

// Adds the loss of a side, of which `rows` rows went through routers. In one block.
__device__ __forceinline__ void side_loss(const Routers* routers, const double* sums, double rows, int experts,
                                             double* to) {
    __shared__ double of_warps[THREADS / LANES];
    double inner = 0;
    for (int i = threadIdx.x; i < experts; i += THREADS) inner += sums[i] * sums[experts + i];
    inner = block_sum(inner, of_warps);
    if (threadIdx.x > 0) return;
    double loss = routers->aux_loss_coef * experts * inner / (rows * rows) + routers->z_loss_coef * sums[2 * experts] / rows;
    *to += loss * routers->weight;
}

// Adds the gradient of that loss to the gradient of a layer's scores. A thread handles one row.
template <class T>
__device__ void router_backward(const T* scores, const float* log_sum_exps, const Routers* routers, const double* sums, T* to,
                            double side_rows, int rows, int experts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    scores += (long long)row * experts;
    to += (long long)row * experts;
    double factor = routers->factor * routers->aux_loss_coef * experts / (side_rows * side_rows);
    float z_grad = (float)(2 * routers->factor * routers->z_loss_coef / side_rows) * log_sum_exps[row], inner = 0;
    for (int i = 0; i < experts; i++) inner += expf(to_f32(scores[i]) - log_sum_exps[row]) * (float)(factor * sums[i]);
    for (int i = 0; i < experts; i++) {
        float probability = expf(to_f32(scores[i]) - log_sum_exps[row]);
        store_or_accumulate(to[i], probability * ((float)(factor * sums[i]) - inner + z_grad), true);
    }
}

ENTRY(router_loss, THREADS, (const Routers* routers, const double* sums, long long rows, int experts, double* to),
      side_loss(routers, sums, (double)rows, experts, to))

#define KERNELS(T, type)                                                                                             \
    ENTRY(router_log_sum_exp_##type, THREADS, (const T* scores, float* log_sum_exps, int rows, int experts),                  \
          log_sum_exp(scores, log_sum_exps, rows, experts))                                                                   \
    ENTRY(router_sums_##type, THREADS,                                                                               \
          (const T* scores, const T* routed, const float* log_sum_exps, double* sums, int rows, int experts, int chosen),    \
          accumulate_router(scores, routed, log_sum_exps, sums, rows, experts, chosen))                                             \
    ENTRY(router_backward_##type, THREADS,                                                                               \
          (const T* scores, const float* log_sum_exps, const Routers* routers, const double* sums, T* to,                    \
           long long side_rows, int rows, int experts),                                                              \
          router_backward(scores, log_sum_exps, routers, sums, to, (double)side_rows, rows, experts))
FOR_EACH_TYPE(KERNELS)
