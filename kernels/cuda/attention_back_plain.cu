// Backward pass of plain attention, as in attention_back.cu.
#include "attention_plain.cuh"

// Stores rows of a tile, or accumulates.
template <int SIZE, class T>
__device__ __forceinline__ void give_pairs(T* to, int width, int size, int count, const float (&sums)[SIZE / 8][4],
                                           float factor, bool add) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int own = warp() * OWN + lane() / 4 + 8 * r;
        if (own >= count) continue;
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
            int column = n * 8 + lane() % 4 * 2;
            float both[2] = {sums[n][2 * r] * factor, sums[n][2 * r + 1] * factor};
            if (column < size) give<2>(to + (long long)own * width + column, both, add);
        }
    }
}

// Grid: x is the tile of queries, y the head.
template <int SIZE, class T>
__device__ void back_plain_queries(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                   const float* totals, const float* along, T* to, int add, const QueryTile* tiles,
                                   const int* seen, int heads, float scale, int kv_heads) {
    using P = Plan<T, SIZE>;
    constexpr int STEP = plain_step<SIZE>(), AREA = STEP * P::stride;
    QueryTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int head = blockIdx.y, kv_head = head / (heads / kv_heads), size = queries.size;
    queries.numbers += head * size;
    gradient.numbers += head * size;
    keys.numbers += kv_head * size;
    values.numbers += kv_head * size;
    T* of_queries = (T*)shared_bytes();
    T* of_gradient = of_queries + P::tile * P::stride;
    T* of_keys = of_gradient + P::tile * P::stride;
    T* of_values = of_keys + 2 * AREA;
    auto begin = [&](int first, int place) {
        begin_rows<SIZE, STEP>(of_keys + place * AREA, keys, tile.key_base + first, tile.key_end - first);
        begin_rows<SIZE, STEP>(of_values + place * AREA, values, tile.key_base + first, tile.key_end - first);
        close_copies();
    };
    begin_rows<SIZE, P::tile>(of_queries, queries, tile.first, tile.count);
    begin_rows<SIZE, P::tile>(of_gradient, gradient, tile.first, tile.count);
    begin(tile.key_first, 0);

    // The two rows of this lane; rows beyond the tile repeat its last row and are not written.
    int seen_first[2], seen_end[2];
    float total[2], common[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        long long row = tile.first + min(warp() * OWN + lane() / 4 + 8 * r, tile.count - 1);
        seen_first[r] = seen[2 * row];
        seen_end[r] = seen[2 * row + 1];
        total[r] = logarithm_of(totals[row * heads + head]);
        common[r] = along[row * heads + head];
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
            float shares[STEP / 8][4], steep[STEP / 8][4];
            product<SIZE, STEP>(shares, of_queries + warp() * OWN * P::stride, of_keys + place * AREA);
            product<SIZE, STEP>(steep, of_gradient + warp() * OWN * P::stride, of_values + place * AREA);
            if (!is_seen_by_all(reach, first, first + STEP)) hide_keys<STEP>(shares, first, seen_first, seen_end);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    steep[n][i] = power_of_two(shares[n][i] * factor - total[i / 2]) * (steep[n][i] - common[i / 2]);
                }
            }
            add_product<SIZE, STEP>(sums, steep, of_keys + place * AREA);
        }
        place ^= 1;
    }
    wait_for_copies<0>();
    T* out = to + (long long)tile.first * queries.width + head * size;
    give_pairs<SIZE>(out, queries.width, size, tile.count, sums, scale, add);
}

// Per-query data of the kernel for keys: log-sum-exp, delta and key range.
struct Told {
    float total;
    float common;
    int first;
    int end;
};

// Grid: x is the tile of keys, y the KV head. Here warps own keys: matrix rows are keys, columns are queries,
// head by head.
template <int SIZE, class T>
__device__ void back_plain_both(Heads<T> queries, Heads<T> keys, Heads<T> values, Heads<T> gradient,
                                const float* totals, const float* along, T* to_keys, T* to_values, int add_keys,
                                int add_values, const KeyTile* tiles, const int* seen, int heads, float scale,
                                int kv_heads) {
    using P = Plan<T, SIZE>;
    constexpr int STEP = plain_step<SIZE>(), AREA = STEP * P::stride;
    // For two queries each: log-sum-exp and delta; the first key and one past the last.
    __shared__ Pack<float, 4> numbers[2][STEP / 2];
    __shared__ Pack<int, 4> ranges[2][STEP / 2];
    __shared__ Reach reaches[2][STEP / LANES];
    KeyTile tile = tiles[blockIdx.x];
    if (tile.count == 0) return;
    int kv_head = blockIdx.y, group = heads / kv_heads, size = queries.size;
    keys.numbers += kv_head * size;
    values.numbers += kv_head * size;
    T* of_keys = (T*)shared_bytes();
    T* of_values = of_keys + P::tile * P::stride;
    T* of_queries = of_values + P::tile * P::stride;
    T* of_gradient = of_queries + 2 * AREA;
    auto begin = [&](int head, int first, int place) {
        Heads<T> own_queries = {queries.numbers + head * size, queries.width, size};
        Heads<T> own_gradient = {gradient.numbers + head * size, gradient.width, size};
        long long row = tile.query_base + first;
        begin_rows<SIZE, STEP>(of_queries + place * AREA, own_queries, row, tile.query_end - first);
        begin_rows<SIZE, STEP>(of_gradient + place * AREA, own_gradient, row, tile.query_end - first);
        close_copies();
    };
    // The first warps load the per-query data of a step, one query per lane, for all others; queries past the
    // end attend to no key.
    bool tells = threadIdx.x < STEP;
    auto look = [&](int head, int first) {
        Told told = {};
        int query = first + threadIdx.x;
        if (tells && query < tile.query_end) {
            long long row = tile.query_base + query;
            told = {totals[row * heads + head], along[row * heads + head], seen[2 * row], seen[2 * row + 1]};
        }
        return told;
    };
    auto tell = [&](const Told& told, int place) {
        if (!tells) return;
        int pair_of = threadIdx.x / 2, which = threadIdx.x % 2 * 2;
        numbers[place][pair_of].numbers[which] = logarithm_of(told.total);
        numbers[place][pair_of].numbers[which + 1] = told.common;
        ranges[place][pair_of].numbers[which] = told.first;
        ranges[place][pair_of].numbers[which + 1] = told.end;
        Reach reach = reach_of_warp(reach_of(told.first, told.end));
        if (lane() == 0) reaches[place][warp()] = reach;
    };
    begin_rows<SIZE, P::tile>(of_keys, keys, tile.first, tile.count);
    begin_rows<SIZE, P::tile>(of_values, values, tile.first, tile.count);
    int head = kv_head * group, last_head = head + group, first = tile.query_first;
    begin(head, first, 0);
    tell(look(head, first), 0);

    float factor = scale * LOG2_E;
    float sums_of_keys[SIZE / 8][4] = {}, sums_of_values[SIZE / 8][4] = {};
    int own_key = tile.first - tile.key_base + warp() * OWN;
    bool more = first < tile.query_end;
    for (int place = 0; more; place ^= 1) {
        wait_for_copies<0>();
        meet();
        first += STEP;
        if (first >= tile.query_end) {
            first = tile.query_first;
            head++;
        }
        more = head < last_head;
        Told told = {};
        if (more) {
            begin(head, first, place ^ 1);
            told = look(head, first);
        }
        Reach reach = reaches[place][0];
        if (STEP > LANES) reach = reach_of_both(reach, reaches[place][STEP / LANES - 1]);
        if (is_seen_by_any(reach, own_key, own_key + OWN)) {
            float shares[STEP / 8][4], steep[STEP / 8][4];
            product<SIZE, STEP>(shares, of_keys + warp() * OWN * P::stride, of_queries + place * AREA);
            product<SIZE, STEP>(steep, of_values + warp() * OWN * P::stride, of_gradient + place * AREA);
            if (!is_seen_by_all(reach, own_key, own_key + OWN)) {
#pragma unroll
                for (int n = 0; n < STEP / 8; n++) {
                    Pack<int, 4> range = ranges[place][n * 4 + lane() % 4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int key = own_key + lane() / 4 + i / 2 * 8, column = i % 2 * 2;
                        if (key < range.numbers[column] || key >= range.numbers[column + 1]) shares[n][i] = -infinity();
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < STEP / 8; n++) {
                Pack<float, 4> own = numbers[place][n * 4 + lane() % 4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int column = i % 2 * 2;
                    shares[n][i] = power_of_two(shares[n][i] * factor - own.numbers[column]);
                    steep[n][i] = shares[n][i] * (steep[n][i] - own.numbers[column + 1]);
                }
            }
            add_product<SIZE, STEP>(sums_of_values, shares, of_gradient + place * AREA);
            add_product<SIZE, STEP>(sums_of_keys, steep, of_queries + place * AREA);
        }
        if (more) tell(told, place ^ 1);
    }
    wait_for_copies<0>();
    if (to_keys) {
        T* out = to_keys + (long long)tile.first * keys.width + kv_head * size;
        give_pairs<SIZE>(out, keys.width, size, tile.count, sums_of_keys, scale, add_keys);
    }
    if (to_values) {
        T* out = to_values + (long long)tile.first * values.width + kv_head * size;
        give_pairs<SIZE>(out, values.width, size, tile.count, sums_of_values, 1, add_values);
    }
}

#define PLAIN_TABLES(T)                                                                                             \
    const T *queries, const T *keys, const T *values, const T *gradient, int query_width, int key_width,            \
        int value_width, int gradient_width, int size, const float *totals, const float *along
#define PLAIN_TABLES_GIVEN(T)                                                                                       \
    Heads<T>{queries, query_width, size}, Heads<T>{keys, key_width, size}, Heads<T>{values, value_width, size},     \
        Heads<T>{gradient, gradient_width, size}, totals, along
#define KERNEL(T, type, SIZE)                                                                                       \
    ENTRY_OF_MANY(attention_back_plain_queries_##type##_##SIZE, (Plan<T, SIZE>::threads), PLAIN_BLOCKS,             \
          (PLAIN_TABLES(T), T* to, int add, const QueryTile* tiles, const int* seen, int heads, float scale,        \
           int kv_heads),                                                                                           \
          back_plain_queries<SIZE>(PLAIN_TABLES_GIVEN(T), to, add, tiles, seen, heads, scale, kv_heads))            \
    ENTRY_OF_MANY(attention_back_plain_both_##type##_##SIZE, (Plan<T, SIZE>::threads), (SIZE > 64 ? 2 : PLAIN_BLOCKS), \
          (PLAIN_TABLES(T), T* to_keys, T* to_values, int add_keys, int add_values, const KeyTile* tiles,           \
           const int* seen, int heads, float scale, int kv_heads),                                                  \
          back_plain_both<SIZE>(PLAIN_TABLES_GIVEN(T), to_keys, to_values, add_keys, add_values, tiles, seen,       \
                                heads, scale, kv_heads))
#define KERNELS(T, type) KERNEL(T, type, 64) KERNEL(T, type, 128)
KERNELS(bf16, bf16)
KERNELS(f16, f16)
