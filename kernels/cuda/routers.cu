// Auxiliary losses of MoE routers: load balancing (Switch, arXiv:2101.03961) and router z-loss
// (arXiv:2202.08906). The layers of a side (encoder or decoder) are accumulated together: for each expert the
// number of choices, for each expert the sum of probabilities, and the sum of squared log-sum-exps.
#include "common.cuh"

#define THREADS 256

// Set by the host: the coefficients of both losses, the factor on gradients, and the weight of the batch.
struct Routers {
    double balance;
    double z;
    double factor;
    double weight;
};

// Computes the log-sum-exp of a row's scores. A thread handles one row.
template <class T> __device__ void logarithms(const T* scores, float* left, int rows, int experts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const T* own = scores + (long long)row * experts;
    float most = -infinity(), sum = 0;
    for (int i = 0; i < experts; i++) most = max(most, number(own[i]));
    for (int i = 0; i < experts; i++) sum += expf(number(own[i]) - most);
    left[row] = most + logf(sum);
}

// A block handles one expert; the one after the last accumulates the squares.
template <class T>
__device__ void sum_router(const T* scores, const T* routed, const float* left, double* sums, int rows, int experts,
                           int chosen) {
    __shared__ double of_warps[THREADS / LANES];
    int expert = blockIdx.x;
    double shares = 0, choices = 0;
    for (int row = threadIdx.x; row < rows; row += THREADS) {
        if (expert == experts) {
            shares += (double)left[row] * left[row];
            continue;
        }
        shares += expf(number(scores[(long long)row * experts + expert]) - left[row]);
        const T* numbers = routed + (long long)row * 2 * chosen + chosen;
        for (int i = 0; i < chosen; i++) choices += (int)number(numbers[i]) == expert ? 1 : 0;
    }
    shares = sum_of_block(shares, of_warps);
    choices = sum_of_block(choices, of_warps);
    if (threadIdx.x > 0) return;
    if (expert < experts) sums[expert] += choices;
    sums[experts + expert] += shares;
}

// Adds the loss of a side, of which `rows` rows went through routers. In one block.
__device__ __forceinline__ void loss_of_side(const Routers* routers, const double* sums, double rows, int experts,
                                             double* to) {
    __shared__ double of_warps[THREADS / LANES];
    double along = 0;
    for (int i = threadIdx.x; i < experts; i += THREADS) along += sums[i] * sums[experts + i];
    along = sum_of_block(along, of_warps);
    if (threadIdx.x > 0) return;
    double loss = routers->balance * experts * along / (rows * rows) + routers->z * sums[2 * experts] / rows;
    *to += loss * routers->weight;
}

// Adds the gradient of that loss to the gradient of a layer's scores. A thread handles one row.
template <class T>
__device__ void router_back(const T* scores, const float* left, const Routers* routers, const double* sums, T* to,
                            double side_rows, int rows, int experts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    scores += (long long)row * experts;
    to += (long long)row * experts;
    double balance = routers->factor * routers->balance * experts / (side_rows * side_rows);
    float z = (float)(2 * routers->factor * routers->z / side_rows) * left[row], along = 0;
    for (int i = 0; i < experts; i++) along += expf(number(scores[i]) - left[row]) * (float)(balance * sums[i]);
    for (int i = 0; i < experts; i++) {
        float share = expf(number(scores[i]) - left[row]);
        give(to[i], share * ((float)(balance * sums[i]) - along + z), true);
    }
}

ENTRY(router_loss, THREADS, (const Routers* routers, const double* sums, long long rows, int experts, double* to),
      loss_of_side(routers, sums, (double)rows, experts, to))

#define KERNELS(T, type)                                                                                             \
    ENTRY(router_logarithms_##type, THREADS, (const T* scores, float* left, int rows, int experts),                  \
          logarithms(scores, left, rows, experts))                                                                   \
    ENTRY(router_sums_##type, THREADS,                                                                               \
          (const T* scores, const T* routed, const float* left, double* sums, int rows, int experts, int chosen),    \
          sum_router(scores, routed, left, sums, rows, experts, chosen))                                             \
    ENTRY(router_back_##type, THREADS,                                                                               \
          (const T* scores, const float* left, const Routers* routers, const double* sums, T* to,                    \
           long long side_rows, int rows, int experts),                                                              \
          router_back(scores, left, routers, sums, to, (double)side_rows, rows, experts))
FOR_EACH_TYPE(KERNELS)
