// Plain flash attention, as in attention.cu.
#include "attention_plain.cuh"

// Grid: x is the tile of queries, y the head.
template <int SIZE, class T>
__device__ void attention_plain(Heads<T> queries, Heads<T> keys, Heads<T> values, T* out, int out_width, float* totals,
                                const QueryTile* tiles, const int* seen, int heads, float scale, int kv_heads) {
    using P = Plan<T, SIZE>;
    constexpr int STEP = plain_step<SIZE>(), AREA = STEP * P::stride;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (heads / kv_heads);
    queries.numbers += head * queries.size;
    keys.numbers += kv_head * keys.size;
    values.numbers += kv_head * values.size;
    T* of_queries = (T*)shared_bytes();
    T* of_keys = of_queries + P::tile * P::stride;
    T* of_values = of_keys + 2 * AREA;
    auto begin = [&](int first, int place) {
        begin_rows<SIZE, STEP>(of_keys + place * AREA, keys, tile.key_base + first, tile.key_end - first);
        begin_rows<SIZE, STEP>(of_values + place * AREA, values, tile.key_base + first, tile.key_end - first);
        close_copies();
    };
    begin_rows<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    begin(tile.key_first, 0);

    // The two rows of this lane; rows beyond the tile use the mask of its last row and are not written.
    int seen_first[2], seen_end[2];
    float most[2], sum[2] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int* own = seen + 2 * (tile.first + min(warp() * OWN + lane() / 4 + 8 * r, tile.count - 1));
        seen_first[r] = own[0];
        seen_end[r] = own[1];
        most[r] = -infinity();
    }
    Reach reach = reach_of_both(reach_of(seen_first[0], seen_end[0]), reach_of(seen_first[1], seen_end[1]));
    reach = reach_of_warp(reach);
    float factor = scale * LOG2_E;
    float sums[SIZE / 8][4] = {};

    int place = 0;
    for (int first = tile.key_first; first < tile.key_end; first += STEP) {
        wait_for_copies<0>();
        meet();
        if (first + STEP < tile.key_end) begin(first + STEP, place ^ 1);
        if (is_seen_by_any(reach, first, first + STEP)) {
            float shares[STEP / 8][4];
            product<SIZE, STEP>(shares, of_queries + warp() * OWN * P::stride, of_keys + place * AREA);
            if (!is_seen_by_all(reach, first, first + STEP)) hide_keys<STEP>(shares, first, seen_first, seen_end);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float was = most[r];
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) most[r] = max(most[r], max(shares[n][2 * r], shares[n][2 * r + 1]));
                most[r] = max(most[r], across(most[r], 1));
                most[r] = max(most[r], across(most[r], 2));
                // If no key was attended to yet, all probabilities are zero, whatever the reference.
                float scaled = most[r] == -infinity() ? 0 : most[r] * factor;
                float shrink = power_of_two(was * factor - scaled);
                sum[r] *= shrink;
#pragma unroll
                for (int n = 0; n < SIZE / 8; n++) {
                    sums[n][2 * r] *= shrink;
                    sums[n][2 * r + 1] *= shrink;
                }
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; i++) {
                        shares[n][i] = power_of_two(shares[n][i] * factor - scaled);
                        sum[r] += shares[n][i];
                    }
                }
            }
            add_product<SIZE, STEP>(sums, shares, of_values + place * AREA);
        }
        place ^= 1;
    }
    // If there are no keys, the first copies are still pending.
    wait_for_copies<0>();

#pragma unroll
    for (int r = 0; r < 2; r++) {
        // Each of the four lanes of a row holds a part of its sum.
        sum[r] += across(sum[r], 1);
        sum[r] += across(sum[r], 2);
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= tile.count) continue;
        long long row = tile.first + own;
        float part = sum[r] > 0 ? 1 / sum[r] : 0;
        if (lane() % 4 == 0) totals[row * heads + head] = most[r] * scale + logf(sum[r]);
        T* to = out + row * out_width + head * queries.size;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
            int column = n * 8 + lane() % 4 * 2;
            float both[2] = {sums[n][2 * r] * part, sums[n][2 * r + 1] * part};
            if (column < queries.size) write<2>(to + column, both);
        }
    }
}

#define KERNEL(T, type, SIZE)                                                                                       \
    ENTRY_OF_MANY(attention_plain_##type##_##SIZE, (Plan<T, SIZE>::threads), PLAIN_BLOCKS,                          \
          (const T* queries, const T* keys, const T* values, int query_width, int key_width, int value_width,       \
           int size, T* out, int out_width, float* totals, const QueryTile* tiles, const int* seen, int heads,      \
           float scale, int kv_heads),                                                                              \
          attention_plain<SIZE>(Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size},              \
                                Heads<T>{values, value_width, size}, out, out_width, totals, tiles, seen, heads,    \
                                scale, kv_heads))
#define KERNELS(T, type) KERNEL(T, type, 64) KERNEL(T, type, 128)
KERNELS(bf16, bf16)
KERNELS(f16, f16)
