// Dense flash attention, as in attention.cu.
#include "attention_dense.cuh"

// Grid: x is the tile of queries, y the head.
template <int SIZE, class T>
__device__ void attention_dense(Heads<T> queries, Heads<T> keys, Heads<T> values, T* out, int out_width, float* log_sum_exps,
                                const QueryTile* tiles, const int* key_ranges, int heads, float scale, int kv_heads) {
    using P = TileConfig<T, SIZE>;
    constexpr int STEP = dense_step<SIZE>(), AREA = STEP * P::stride;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (heads / kv_heads);
    queries.data += head * queries.size;
    keys.data += kv_head * keys.size;
    values.data += kv_head * values.size;
    T* of_queries = (T*)dynamic_shared_memory();
    T* of_keys = of_queries + P::tile * P::stride;
    T* of_values = of_keys + 2 * AREA;
    auto begin = [&](int first, int place) {
        load_rows<SIZE, STEP>(of_keys + place * AREA, keys, tile.key_base + first, tile.key_end - first);
        load_rows<SIZE, STEP>(of_values + place * AREA, values, tile.key_base + first, tile.key_end - first);
        cp_async_commit();
    };
    load_rows<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    begin(tile.key_first, 0);

    // The two rows of this lane; rows beyond the tile use the mask of its last row and are not written.
    int range_first[2], range_end[2];
    float maximum[2], sum[2] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int* own = key_ranges + 2 * (tile.first + min(warp() * OWN + lane() / 4 + 8 * r, tile.count - 1));
        range_first[r] = own[0];
        range_end[r] = own[1];
        maximum[r] = -infinity();
    }
    VisibleRange visible = merge_ranges(visible_range(range_first[0], range_end[0]), visible_range(range_first[1], range_end[1]));
    visible = warp_range(visible);
    float factor = scale * LOG2_E;
    float sums[SIZE / 8][4] = {};

    int place = 0;
    for (int first = tile.key_first; first < tile.key_end; first += STEP) {
        cp_async_wait<0>();
        sync_block();
        if (first + STEP < tile.key_end) begin(first + STEP, place ^ 1);
        if (any_visible(visible, first, first + STEP)) {
            float probabilities[STEP / 8][4];
            product<SIZE, STEP>(probabilities, of_queries + warp() * OWN * P::stride, of_keys + place * AREA);
            if (!all_visible(visible, first, first + STEP)) mask_keys<STEP>(probabilities, first, range_first, range_end);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float previous = maximum[r];
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) maximum[r] = max(maximum[r], max(probabilities[n][2 * r], probabilities[n][2 * r + 1]));
                maximum[r] = max(maximum[r], shuffle_xor(maximum[r], 1));
                maximum[r] = max(maximum[r], shuffle_xor(maximum[r], 2));
                // If no key was attended to yet, all probabilities are zero, whatever the reference.
                float scaled = maximum[r] == -infinity() ? 0 : maximum[r] * factor;
                float rescale = exp2_approx(previous * factor - scaled);
                sum[r] *= rescale;
#pragma unroll
                for (int n = 0; n < SIZE / 8; n++) {
                    sums[n][2 * r] *= rescale;
                    sums[n][2 * r + 1] *= rescale;
                }
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                    for (int i = 2 * r; i < 2 * r + 2; i++) {
                        probabilities[n][i] = exp2_approx(probabilities[n][i] * factor - scaled);
                        sum[r] += probabilities[n][i];
                    }
                }
            }
            add_product<SIZE, STEP>(sums, probabilities, of_values + place * AREA);
        }
        place ^= 1;
    }
    // If there are no keys, the first copies are still pending.
    cp_async_wait<0>();

#pragma unroll
    for (int r = 0; r < 2; r++) {
        // Each of the four lanes of a row holds a part of its sum.
        sum[r] += shuffle_xor(sum[r], 1);
        sum[r] += shuffle_xor(sum[r], 2);
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= tile.count) continue;
        long long row = tile.first + own;
        float part = sum[r] > 0 ? 1 / sum[r] : 0;
        if (lane() % 4 == 0) log_sum_exps[row * heads + head] = maximum[r] * scale + logf(sum[r]);
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
    ENTRY_WITH_BLOCKS(attention_dense_##type##_##SIZE, (TileConfig<T, SIZE>::threads), DENSE_BLOCKS,                          \
          (const T* queries, const T* keys, const T* values, int query_width, int key_width, int value_width,       \
           int size, T* out, int out_width, float* log_sum_exps, const QueryTile* tiles, const int* key_ranges, int heads,      \
           float scale, int kv_heads),                                                                              \
          attention_dense<SIZE>(Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size},              \
                                Heads<T>{values, value_width, size}, out, out_width, log_sum_exps, tiles, key_ranges, heads,    \
                                scale, kv_heads))
#define KERNELS(T, type) KERNEL(T, type, 64) KERNEL(T, type, 128)
KERNELS(bf16, bf16)
KERNELS(f16, f16)
