// Flash attention (arXiv:2205.14135) with masks, biases, softcap and sinks: keys are read tile by tile, and
// the running sums are rescaled to the running maximum. Of the scores, only each query's log-sum-exp is kept
// for the backward pass.
#include "attention.cuh"

// Grid: x is the tile of queries, y the head.
template <int SIZE, class T>
__device__ void attention(Heads<T> queries, Heads<T> keys, Heads<T> values, T* out, int out_width, float* totals,
                          const QueryTile* tiles, Scores scores, const float* sinks, int kv_heads) {
    using P = Plan<T, SIZE>;
    constexpr int STEP = P::step;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (scores.heads / kv_heads);
    queries.numbers += head * queries.size;
    keys.numbers += kv_head * keys.size;
    values.numbers += kv_head * values.size;
    T* of_queries = (T*)shared_bytes();
    T* of_keys = of_queries + P::tile * P::stride;
    T* of_values = of_keys + STEP * P::stride;

    // The two rows of this lane; rows beyond the tile use the mask of its last row and are not written.
    Query query[2];
    float most[2], sum[2];
    for (int r = 0; r < 2; r++) {
        int row = tile.first + min(warp() * OWN + lane() / 4 + 8 * r, tile.count - 1);
        query[r] = query_of(scores, row, row - tile.query_base);
        most[r] = sinks ? sinks[head] : -infinity();
        // Each of the four lanes of a row holds a part of its sum.
        sum[r] = sinks && lane() % 4 == 0 ? 1 : 0;
    }
    float sums[SIZE / 8][4] = {};

    begin_tile<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    int first = tile.key_first;
    begin_tile<SIZE, STEP>(of_keys, keys, tile.key_base + first, tile.key_end - first);
    close_copies();
    for (; first < tile.key_end; first += STEP) {
        begin_tile<SIZE, STEP>(of_values, values, tile.key_base + first, tile.key_end - first);
        close_copies();
        wait_for_copies<1>();
        meet();
        float shares[STEP / 8][4];
        product<SIZE, STEP>(shares, of_queries + warp() * OWN * P::stride, of_keys);
        meet();
        int next = first + STEP;
        if (next < tile.key_end) begin_tile<SIZE, STEP>(of_keys, keys, tile.key_base + next, tile.key_end - next);
        close_copies();

        float was[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int key = first + n * 8 + lane() % 4 * 2 + i % 2;
                float slope;
                shares[n][i] = sees(scores, query[i / 2], key)
                    ? score(scores, head, query[i / 2], key, shares[n][i], slope)
                    : -infinity();
                most[i / 2] = max(most[i / 2], shares[n][i]);
            }
        }
        float scaled[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            most[r] = max(most[r], across(most[r], 1));
            most[r] = max(most[r], across(most[r], 2));
            // If no key was attended to yet, all probabilities are zero, whatever the reference.
            scaled[r] = most[r] == -infinity() ? 0 : most[r] * LOG2_E;
            float factor = power_of_two(was[r] * LOG2_E - scaled[r]);
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
                shares[n][i] = power_of_two(shares[n][i] * LOG2_E - scaled[i / 2]);
                sum[i / 2] += shares[n][i];
            }
        }
        wait_for_copies<1>();
        meet();
        add_product<SIZE, STEP>(sums, shares, of_values);
        meet();
    }
    // If there are no keys, the first copies are still pending.
    wait_for_copies<0>();

#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += across(sum[r], 1);
        sum[r] += across(sum[r], 2);
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= tile.count) continue;
        long long row = tile.first + own;
        float part = sum[r] > 0 ? 1 / sum[r] : 0;
        if (lane() % 4 == 0) totals[row * scores.heads + head] = most[r] + logf(sum[r]);
        T* to = out + row * out_width + head * queries.size;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = n * 8 + lane() % 4 * 2 + i;
                if (column < queries.size) set(to[column], sums[n][2 * r + i] * part);
            }
        }
    }
}

#define KERNEL(T, type, SIZE)                                                                                       \
    ENTRY(attention_##type##_##SIZE, (Plan<T, SIZE>::threads),                                                      \
          (const T* queries, const T* keys, const T* values, int query_width, int key_width, int value_width,       \
           int size, T* out, int out_width, float* totals, const QueryTile* tiles, SCORES, const float* sinks,      \
           int kv_heads),                                                                                           \
          attention<SIZE>(Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size},                    \
                          Heads<T>{values, value_width, size}, out, out_width, totals, tiles, SCORES_GIVEN, sinks,  \
                          kv_heads))
#define KERNELS(T, type) FOR_EACH_SIZE(KERNEL, T, type)
FOR_EACH_TYPE(KERNELS)
