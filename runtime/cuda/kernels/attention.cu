// Flash attention (arXiv:2205.14135) with masks, biases, softcap and sinks: keys are read tile by tile, and
// the running sums are rescaled to the running maximum. Of the scores, only each query's log-sum-exp is kept
// for the backward pass.
#include "attention.cuh"

// Grid: x is the tile of queries, y the head.
template <int SIZE, class T>
__device__ void attention(Heads<T> queries, Heads<T> keys, Heads<T> values, T* out, int out_width, float* log_sum_exps,
                          const QueryTile* tiles, Scores scores, const float* sinks, int kv_heads) {
    using P = TileConfig<T, SIZE>;
    constexpr int STEP = P::step;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (scores.heads / kv_heads);
    queries.data += head * queries.size;
    keys.data += kv_head * keys.size;
    values.data += kv_head * values.size;
    T* of_queries = (T*)dynamic_shared_memory();
    T* of_keys = of_queries + P::tile * P::stride;
    T* of_values = of_keys + STEP * P::stride;

    // The two rows of this lane; rows beyond the tile use the mask of its last row and are not written.
    Query query[2];
    float maximum[2], sum[2];
    for (int r = 0; r < 2; r++) {
        int row = tile.first + min(warp() * OWN + lane() / 4 + 8 * r, tile.count - 1);
        query[r] = query_of(scores, row, row - tile.query_base);
        maximum[r] = sinks ? sinks[head] : -infinity();
        // Each of the four lanes of a row holds a part of its sum.
        sum[r] = sinks && lane() % 4 == 0 ? 1 : 0;
    }
    float sums[SIZE / 8][4] = {};

    load_tile<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    int first = tile.key_first;
    load_tile<SIZE, STEP>(of_keys, keys, tile.key_base + first, tile.key_end - first);
    cp_async_commit();
    for (; first < tile.key_end; first += STEP) {
        load_tile<SIZE, STEP>(of_values, values, tile.key_base + first, tile.key_end - first);
        cp_async_commit();
        cp_async_wait<1>();
        sync_block();
        float probabilities[STEP / 8][4];
        product<SIZE, STEP>(probabilities, of_queries + warp() * OWN * P::stride, of_keys);
        sync_block();
        int next = first + STEP;
        if (next < tile.key_end) load_tile<SIZE, STEP>(of_keys, keys, tile.key_base + next, tile.key_end - next);
        cp_async_commit();

        float previous[2] = {maximum[0], maximum[1]};
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = first + n * 8 + lane() % 4 * 2 + i % 2;
                float slope;
                probabilities[n][i] = is_visible(scores, query[i / 2], key)
                    ? score(scores, head, query[i / 2], key, probabilities[n][i], slope)
                    : -infinity();
                maximum[i / 2] = max(maximum[i / 2], probabilities[n][i]);
            }
        }
        float scaled[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            maximum[r] = max(maximum[r], shuffle_xor(maximum[r], 1));
            maximum[r] = max(maximum[r], shuffle_xor(maximum[r], 2));
            // If no key was attended to yet, all probabilities are zero, whatever the reference.
            scaled[r] = maximum[r] == -infinity() ? 0 : maximum[r] * LOG2_E;
            float factor = exp2_approx(previous[r] * LOG2_E - scaled[r]);
            sum[r] *= factor;
#pragma unroll
            for (int n = 0; n < SIZE / 8; n++) {
                sums[n][2 * r] *= factor;
                sums[n][2 * r + 1] *= factor;
            }
        }
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                probabilities[n][i] = exp2_approx(probabilities[n][i] * LOG2_E - scaled[i / 2]);
                sum[i / 2] += probabilities[n][i];
            }
        }
        cp_async_wait<1>();
        sync_block();
        add_product<SIZE, STEP>(sums, probabilities, of_values);
        sync_block();
    }
    // If there are no keys, the first copies are still pending.
    cp_async_wait<0>();

#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += shuffle_xor(sum[r], 1);
        sum[r] += shuffle_xor(sum[r], 2);
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= tile.count) continue;
        long long row = tile.first + own;
        float part = sum[r] > 0 ? 1 / sum[r] : 0;
        if (lane() % 4 == 0) log_sum_exps[row * scores.heads + head] = maximum[r] + logf(sum[r]);
        T* to = out + row * out_width + head * queries.size;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = n * 8 + lane() % 4 * 2 + i;
                if (column < queries.size) from_f32(to[column], sums[n][2 * r + i] * part);
            }
        }
    }
}

#define KERNEL(T, type, SIZE)                                                                                       \
    ENTRY(attention_##type##_##SIZE, (TileConfig<T, SIZE>::threads),                                                      \
          (const T* queries, const T* keys, const T* values, int query_width, int key_width, int value_width,       \
           int size, T* out, int out_width, float* log_sum_exps, const QueryTile* tiles, SCORES, const float* sinks,      \
           int kv_heads),                                                                                           \
          attention<SIZE>(Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size},                    \
                          Heads<T>{values, value_width, size}, out, out_width, log_sum_exps, tiles, SCORE_ARGUMENTS, sinks,  \
                          kv_heads))
#define KERNELS(T, type) FOR_EACH_SIZE(KERNEL, T, type)
FOR_EACH_TYPE(KERNELS)
