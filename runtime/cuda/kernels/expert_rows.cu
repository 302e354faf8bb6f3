// What a mixture of experts does to rows beside matmuls: runtime/backend/src/moe_routing.rs. The slot table is that of
// expert_slots.cu.
#include "exact.cuh"
#include "libm.cuh"

// Selects the experts of a row: weights, highest score first, then numbers.
__device__ __forceinline__ void route(const float* scores, float* out, int experts, int top_k, bool normalizes, float* exponentials) {
    float* left = exponentials + experts;
    float largest = -infinity();
    for (int expert = lane(); expert < experts; expert += LANES) largest = scores[expert] > largest ? scores[expert] : largest;
    largest = warp_larger(largest);
    for (int expert = threadIdx.x; expert < experts; expert += blockDim.x) {
        exponentials[expert] = exp_libm(scores[expert] - largest);
        left[expert] = scores[expert];
    }
    sync_block();
    if (warp() > 0) return;
    float sum = 0.0f, total = 0.0f;
#pragma unroll 8
    for (int expert = 0; expert < experts; expert++) sum = sum + exponentials[expert];
    for (int choice = 0; choice < top_k; choice++) {
        // The highest score that is left, of equal ones the first; a selected score is NaN, which is never higher.
        int best = -1;
        float best_score = -infinity();
        auto compare = [&](int expert, float score) {
            bool is_better = expert >= 0 && (best < 0 || score > best_score || (score == best_score && expert < best));
            best = is_better ? expert : best;
            best_score = is_better ? score : best_score;
        };
        for (int expert = lane(); expert < experts; expert += LANES) compare(left[expert] == left[expert] ? expert : -1, left[expert]);
#pragma unroll
        for (int mask = LANES / 2; mask > 0; mask /= 2) {
            int other = shuffle_xor(best, mask);
            float other_score = shuffle_xor(best_score, mask);
            compare(other, other_score);
        }
        best = max(best, 0);
        float weight = exponentials[best] / sum;
        total = total + weight;
        sync_warp();
        if (lane() == 0) {
            left[best] = __uint_as_float(0x7fc00000);
            out[choice] = weight;
            out[top_k + choice] = (float)best;
        }
        sync_warp();
    }
    if (lane() == 0 && normalizes) {
        for (int choice = 0; choice < top_k; choice++) out[choice] = out[choice] / total;
    }
}

// Two floats of shared memory for each expert.
ENTRY(expert_route, 128,
      (const float* scores, int stride, float* out, int out_stride, int experts, int top_k, int normalizes, const int* row_count), {
    long long row = blockIdx.x;
    if (row >= *row_count) return;
    float* shared = reinterpret_cast<float*>(dynamic_shared_memory());
    route(scores + row * stride, out + row * out_stride, experts, top_k, normalizes != 0, shared);
})

// Copies a row to its slot; slots that are not used are zero.
ENTRY(expert_dispatch, 256,
      (const float* from, int stride, float* out, int out_stride, int columns, const int* table, int experts, const int* slot_count), {
    long long slot = blockIdx.x;
    int slots = *slot_count;
    if (slot >= slots) return;
    bool is_used = slot < table[experts];
    const float* row = from + (is_used ? table[2 * experts + 1 + slots + slot] : 0) * (long long)stride;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[slot * out_stride + i] = is_used ? row[i] : 0.0f;
})

// Sums the outputs of a row's experts, each times its weight, in order of selection.
ENTRY(expert_combine, 256,
      (const float* from, int stride, const float* routed, int routed_stride, float* out, int out_stride, int columns, const int* table,
       int experts, int top_k, const int* row_count), {
    long long row = blockIdx.x;
    if (row >= *row_count) return;
    const int* slots = table + 2 * experts + 1 + row * top_k;
    const float* weights = routed + row * routed_stride;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float sum = 0.0f;
        for (int choice = 0; choice < top_k; choice++) {
            if (slots[choice] >= 0) sum = sum + weights[choice] * from[(long long)slots[choice] * stride + i];
        }
        out[row * out_stride + i] = sum;
    }
})
