// Linear attention and the gated delta rule: for each head of each sequence, a state matrix of constant size
// is updated with each token's key and value and read by its query. A warp owns some columns of the state,
// distributed over its lanes; columns are independent.
#include "common.cuh"

// Columns per warp at a time, and maximum number of elements of a column per lane.
#define COLUMNS 4
#define KEYS 8
// Warps per block.
#define WARPS 8
// Tokens between two states that the backward pass stores.
#define CHUNK 32
// Added to the denominators of normalized outputs.
#define EPSILON 1e-6f

// Numbered as in trainer/src/cuda/op/recur.rs.
enum Taking { SUM, WHOLE_SUM, DELTA };

// Heads of the state and of each input, and columns of a key and of a value.
struct Form {
    int heads, query_heads, key_heads, value_heads, key_size, value_size;
    int taking;
    // Whether decays are given as logarithms.
    int logarithm;
};

// Rules with a sum of keys append a value column of ones, which accumulates that sum.
__device__ __forceinline__ int columns_of(const Form& form) {
    return form.value_size + (form.taking == DELTA ? 0 : 1);
}

// The inputs of all heads, row-major.
template <class T> struct Tokens {
    const T *queries, *keys, *values, *decays, *rates;
};

template <class T> struct Head {
    Tokens<T> tokens;
    Form form;
    int head;

    // Returns the offset of a row's columns in an input with `heads` heads.
    __device__ __forceinline__ long long place(long long row, int heads, int size) const {
        return (row * heads + head * heads / form.heads) * size;
    }

    // Loads a lane's elements of a key.
    __device__ __forceinline__ void lanes_of(float (&to)[KEYS], const T* from) const {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            int i = j * LANES + lane();
            to[j] = i < form.key_size ? number(from[i]) : 0;
        }
    }

    __device__ __forceinline__ void query(float (&to)[KEYS], int row) const {
        lanes_of(to, tokens.queries + place(row, form.query_heads, form.key_size));
    }

    __device__ __forceinline__ void key(float (&to)[KEYS], int row) const {
        lanes_of(to, tokens.keys + place(row, form.key_heads, form.key_size));
    }

    __device__ __forceinline__ float value(int row, int column) const {
        if (column >= form.value_size) return column < columns_of(form) ? 1 : 0;
        return number(tokens.values[place(row, form.value_heads, form.value_size) + column]);
    }

    __device__ __forceinline__ float decay(int row) const {
        if (form.taking != DELTA) return 1;
        float x = number(tokens.decays[(long long)row * form.heads + head]);
        return form.logarithm ? expf(x) : x;
    }

    __device__ __forceinline__ float rate(int row) const {
        return form.taking == DELTA ? number(tokens.rates[(long long)row * form.heads + head]) : 1;
    }
};

__device__ __forceinline__ float dot(const float (&a)[KEYS], const float (&b)[KEYS]) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < KEYS; j++) sum += a[j] * b[j];
    return sum_of_warp(sum);
}

// Adds a multiple of a key to a column.
__device__ __forceinline__ void grow(float (&column)[KEYS], const float (&key)[KEYS], float factor) {
#pragma unroll
    for (int j = 0; j < KEYS; j++) column[j] += key[j] * factor;
}

typedef float Columns[COLUMNS][KEYS];

// Updates the state with a token. `differences` receives the value, for the delta rule minus what the decayed
// state reads for the key.
template <class T>
__device__ __forceinline__ void learn(const Head<T>& head, int row, int first, const float (&key)[KEYS], Columns& state,
                                      float (&differences)[COLUMNS]) {
    float decay = head.decay(row), rate = head.rate(row);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        differences[c] = head.value(row, first + c);
        if (head.form.taking == DELTA) {
#pragma unroll
            for (int j = 0; j < KEYS; j++) state[c][j] *= decay;
            differences[c] -= dot(key, state[c]);
        }
        grow(state[c], key, differences[c] * rate);
    }
}

template <class T>
__device__ void recur(const Head<T>& head, const int* starts, T* out) {
    const Form& form = head.form;
    int first_row = starts[blockIdx.y], end = starts[blockIdx.y + 1], size = form.value_size;
    int first = (blockIdx.z * WARPS + warp()) * COLUMNS;
    if (first >= size) return;
    bool whole = form.taking == WHOLE_SUM;
    Columns state = {};
    float keys[KEYS] = {}, key[KEYS], query[KEYS], differences[COLUMNS];
    auto take = [&](int row) {
        head.key(key, row);
        learn(head, row, first, key, state, differences);
        grow(keys, key, 1);
    };
    for (int row = first_row; whole && row < end; row++) take(row);
    for (int row = first_row; row < end; row++) {
        if (!whole) take(row);
        head.query(query, row);
        float sum = form.taking == DELTA ? 1 : dot(query, keys) + EPSILON;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            float answer = dot(query, state[c]) / sum;
            if (lane() == 0 && first + c < size) {
                set(out[((long long)row * form.heads + head.head) * size + first + c], answer);
            }
        }
    }
}

// Gradients of the inputs of each head, as f32, per head; and for each row and head, the denominator of its
// outputs and the dot product of its outputs with their gradients.
struct Given {
    float *queries, *keys, *values, *decays, *rates, *sums;
};

// Lines of LANES elements that a stored column takes.
__device__ __forceinline__ int lines_of(const Form& form) { return (form.key_size + LANES - 1) / LANES; }

// Elements of the columns that a block owns at a time.
__device__ __forceinline__ long long kept_of(const Form& form) {
    return (long long)WARPS * COLUMNS * LANES * lines_of(form);
}

__device__ __forceinline__ void keep(float* to, const Form& form, const Columns& state) {
    int lines = lines_of(form);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            if (j < lines) to[((warp() * COLUMNS + c) * lines + j) * LANES + lane()] = state[c][j];
        }
    }
}

__device__ __forceinline__ void bring(Columns& state, const Form& form, const float* from) {
    int lines = lines_of(form);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            state[c][j] = j < lines ? from[((warp() * COLUMNS + c) * lines + j) * LANES + lane()] : 0;
        }
    }
}

// Contributions of the warps of a block to a row, which the block adds up.
struct Shares {
    float queries[WARPS][KEYS * LANES];
    float keys[WARPS][KEYS * LANES];
    float decays[WARPS];
    float rates[WARPS];
};

// Adds the contributions of all warps to the gradients of a row and head; all threads of the block must call
// it.
__device__ __forceinline__ void share_out(const Shares& shares, const Given& given, long long place, int key_size,
                                          bool add) {
    meet();
    for (int i = threadIdx.x; i < key_size; i += WARPS * LANES) {
        float query = 0, key = 0;
        for (int w = 0; w < WARPS; w++) {
            query += shares.queries[w][i];
            key += shares.keys[w][i];
        }
        give(given.queries[place * key_size + i], query, add);
        give(given.keys[place * key_size + i], key, add);
    }
    if (threadIdx.x == 0 && given.decays) {
        float decay = 0, rate = 0;
        for (int w = 0; w < WARPS; w++) {
            decay += shares.decays[w];
            rate += shares.rates[w];
        }
        give(given.decays[place], decay, add);
        give(given.rates[place], rate, add);
    }
    meet();
}

// Backward pass of a head of a sequence, one group of columns after the other. `states` has room for the
// state before every chunk of the batch's sequences, `recent` for the state before each token of a chunk, up
// to `rows_kept` per sequence; with bidirectional attention (WHOLE_SUM), neither is used.
template <class T>
__device__ void recur_back(const Head<T>& head, const int* starts, const T* gradient, const Given& given, float* states,
                           float* recent, int rows_kept) {
    __shared__ Shares shares;
    __shared__ float parts[WARPS];
    const Form& form = head.form;
    int text = blockIdx.y, first_row = starts[text], end = starts[text + 1];
    bool whole = form.taking == WHOLE_SUM, delta = form.taking == DELTA;
    long long size_of_state = kept_of(form);
    recent += ((long long)text * form.heads + head.head) * rows_kept * size_of_state;
    // Each sequence starts a new chunk.
    auto kept = [&](int row) {
        long long chunk = first_row / CHUNK + text + (row - first_row) / CHUNK;
        return states + (chunk * form.heads + head.head) * size_of_state;
    };
    auto place = [&](int row) { return (long long)row * form.heads + head.head; };
    int columns = columns_of(form), size = form.value_size;
    float key[KEYS], query[KEYS], differences[COLUMNS];
    for (int group = 0; group < columns; group += WARPS * COLUMNS) {
        int first = group + warp() * COLUMNS;
        auto steep_of = [&](int row, int column) {
            return column < size ? number(gradient[place(row) * size + column]) : 0;
        };
        // Forward: stores the state before each chunk, and the denominators of the outputs.
        Columns state = {};
        float keys[KEYS] = {};
        auto take = [&](int row) {
            head.key(key, row);
            learn(head, row, first, key, state, differences);
            grow(keys, key, 1);
        };
        for (int row = first_row; whole && row < end; row++) take(row);
        for (int row = first_row; row < end; row++) {
            if (!whole) {
                if ((row - first_row) % CHUNK == 0) keep(kept(row), form, state);
                take(row);
            }
            if (delta) continue;
            head.query(query, row);
            float sum = dot(query, keys) + EPSILON, along = 0;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) along += dot(query, state[c]) * steep_of(row, first + c);
            if (lane() == 0) parts[warp()] = along / sum;
            meet();
            if (threadIdx.x == 0) {
                for (int w = 1; w < WARPS; w++) parts[0] += parts[w];
                given.sums[2 * place(row)] = sum;
                give(given.sums[2 * place(row) + 1], parts[0], group > 0);
            }
            meet();
        }
        // Backward. `steep` is the gradient of the state.
        Columns steep = {};
        // Accumulates the gradients of the state, through the outputs, and of the query.
        auto ask = [&](int row, float (&given_query)[KEYS]) {
            head.query(query, row);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float of_answer = steep_of(row, first + c);
                if (!delta) {
                    float sum = given.sums[2 * place(row)];
                    of_answer = (first + c == size ? -given.sums[2 * place(row) + 1] : of_answer) / sum;
                }
                grow(given_query, state[c], of_answer);
                grow(steep[c], query, of_answer);
            }
        };
        auto leave = [&](float (&rows)[WARPS][KEYS * LANES], const float (&numbers)[KEYS]) {
#pragma unroll
            for (int j = 0; j < KEYS; j++) rows[warp()][j * LANES + lane()] = numbers[j];
        };
        for (int row = first_row; whole && row < end; row++) {
            float given_query[KEYS] = {}, none[KEYS] = {};
            ask(row, given_query);
            leave(shares.queries, given_query);
            leave(shares.keys, none);
            share_out(shares, given, place(row), form.key_size, group > 0);
        }
        int chunks = (end - first_row + CHUNK - 1) / CHUNK;
        for (int chunk = chunks - 1; chunk >= 0; chunk--) {
            int begin = first_row + chunk * CHUNK, stop = min(begin + CHUNK, end);
            if (!whole) {
                bring(state, form, kept(begin));
                for (int row = begin; row < stop; row++) {
                    keep(recent + (row - begin) * size_of_state, form, state);
                    take(row);
                }
            }
            for (int row = stop - 1; row >= begin; row--) {
                float given_query[KEYS] = {}, given_key[KEYS] = {}, of_decay = 0, of_rate = 0;
                const float* before = recent + (row - begin) * size_of_state;
                if (!whole) bring(state, form, before);
                head.key(key, row);
                if (!whole) {
                    learn(head, row, first, key, state, differences);
                    ask(row, given_query);
                    bring(state, form, before);
                } else {
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) differences[c] = head.value(row, first + c);
                }
                float decay = head.decay(row), rate = head.rate(row);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    grow(given_key, steep[c], differences[c] * rate);
                    float of_change = dot(key, steep[c]);
                    if (lane() == 0 && first + c < size) given.values[place(row) * size + first + c] = of_change * rate;
                    if (!delta) continue;
                    of_rate += of_change * differences[c];
                    grow(given_key, state[c], -of_change * rate * decay);
                    grow(steep[c], key, -of_change * rate);
                    of_decay += dot(steep[c], state[c]);
#pragma unroll
                    for (int j = 0; j < KEYS; j++) steep[c][j] *= decay;
                }
                leave(shares.queries, given_query);
                leave(shares.keys, given_key);
                if (lane() == 0) {
                    shares.decays[warp()] = form.logarithm ? of_decay * decay : of_decay;
                    shares.rates[warp()] = of_rate;
                }
                share_out(shares, given, place(row), form.key_size, group > 0 || whole);
            }
        }
    }
}

// Sums gradients over the heads that share the same columns (GQA).
template <class T>
__device__ void gather_heads(const float* given, T* to, int add, int rows, int columns, int heads, int size) {
    for_each_cell<T>(rows, columns, false, [&](int row, int column, auto) {
        int sharing = heads * size / columns;
        const float* from = given + ((long long)row * heads + column / size * sharing) * size + column % size;
        float sum = 0;
        for (int i = 0; i < sharing; i++) sum += from[i * size];
        give(to[(long long)row * columns + column], sum, add);
    });
}

#define HEAD(T)                                                                                                      \
    (Head<T>{{queries, keys, values, decays, rates},                                                                 \
             {heads, query_heads, key_heads, value_heads, key_size, value_size, taking, logarithm},                  \
             (int)blockIdx.x})

#define KERNELS(T, type)                                                                                             \
    ENTRY(recur_##type, WARPS* LANES,                                                                                \
          (const T* queries, const T* keys, const T* values, const T* decays, const T* rates, int heads,             \
           int query_heads, int key_heads, int value_heads, int key_size, int value_size, int taking, int logarithm, \
           const int* starts, T* out),                                                                               \
          recur(HEAD(T), starts, out))                                                                               \
    ENTRY(recur_back_##type, WARPS* LANES,                                                                           \
          (const T* queries, const T* keys, const T* values, const T* decays, const T* rates, int heads,             \
           int query_heads, int key_heads, int value_heads, int key_size, int value_size, int taking, int logarithm, \
           const int* starts, const T* gradient, float* given_queries, float* given_keys, float* given_values,       \
           float* given_decays, float* given_rates, float* sums, float* states, float* recent, int rows_kept),       \
          recur_back(HEAD(T), starts, gradient,                                                                      \
                     Given{given_queries, given_keys, given_values, given_decays, given_rates, sums}, states, recent, \
                     rows_kept))                                                                                     \
    ENTRY(gather_heads_##type, 256,                                                                                  \
          (const float* given, T* to, int add, int rows, int columns, int heads, int size),                          \
          gather_heads(given, to, add, rows, columns, heads, size))
FOR_EACH_TYPE(KERNELS)
