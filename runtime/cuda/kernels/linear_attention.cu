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

// Numbered as in runtime/cuda/src/ops/linear_attention.rs.
enum Rule { SUM, WHOLE_SUM, DELTA };

// Heads of the state and of each input, and columns of a key and of a value.
struct Shape {
    int heads, query_heads, key_heads, value_heads, key_size, value_size;
    int rule;
    // Whether decays are given as logarithms.
    int logarithm;
};

// Rules with a sum of keys append a value column of ones, which accumulates that sum.
__device__ __forceinline__ int state_columns(const Shape& shape) {
    return shape.value_size + (shape.rule == DELTA ? 0 : 1);
}

// The inputs of all heads, row-major.
template <class T> struct Tokens {
    const T *queries, *keys, *values, *decays, *rates;
};

template <class T> struct Head {
    Tokens<T> tokens;
    Shape shape;
    int head;

    // Returns the offset of a row's columns in an input with `heads` heads.
    __device__ __forceinline__ long long place(long long row, int heads, int size) const {
        return (row * heads + head * heads / shape.heads) * size;
    }

    // Loads a lane's elements of a key.
    __device__ __forceinline__ void load_lanes(float (&to)[KEYS], const T* from) const {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            int i = j * LANES + lane();
            to[j] = i < shape.key_size ? to_f32(from[i]) : 0;
        }
    }

    __device__ __forceinline__ void query(float (&to)[KEYS], int row) const {
        load_lanes(to, tokens.queries + place(row, shape.query_heads, shape.key_size));
    }

    __device__ __forceinline__ void key(float (&to)[KEYS], int row) const {
        load_lanes(to, tokens.keys + place(row, shape.key_heads, shape.key_size));
    }

    __device__ __forceinline__ float value(int row, int column) const {
        if (column >= shape.value_size) return column < state_columns(shape) ? 1 : 0;
        return to_f32(tokens.values[place(row, shape.value_heads, shape.value_size) + column]);
    }

    __device__ __forceinline__ float decay(int row) const {
        if (shape.rule != DELTA) return 1;
        float x = to_f32(tokens.decays[(long long)row * shape.heads + head]);
        return shape.logarithm ? expf(x) : x;
    }

    __device__ __forceinline__ float rate(int row) const {
        return shape.rule == DELTA ? to_f32(tokens.rates[(long long)row * shape.heads + head]) : 1;
    }
};

__device__ __forceinline__ float dot(const float (&a)[KEYS], const float (&b)[KEYS]) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < KEYS; j++) sum += a[j] * b[j];
    return warp_sum(sum);
}

// Adds a multiple of a key to a column.
__device__ __forceinline__ void add_scaled(float (&column)[KEYS], const float (&key)[KEYS], float factor) {
#pragma unroll
    for (int j = 0; j < KEYS; j++) column[j] += key[j] * factor;
}

typedef float StateColumns[COLUMNS][KEYS];

// Updates the state with a token. `differences` receives the value, for the delta rule minus what the decayed
// state reads for the key.
template <class T>
__device__ __forceinline__ void update_state(const Head<T>& head, int row, int first, const float (&key)[KEYS], StateColumns& state,
                                      float (&differences)[COLUMNS]) {
    float decay = head.decay(row), rate = head.rate(row);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        differences[c] = head.value(row, first + c);
        if (head.shape.rule == DELTA) {
#pragma unroll
            for (int j = 0; j < KEYS; j++) state[c][j] *= decay;
            differences[c] -= dot(key, state[c]);
        }
        add_scaled(state[c], key, differences[c] * rate);
    }
}

template <class T>
__device__ void linear_attention(const Head<T>& head, const int* starts, T* out) {
    const Shape& shape = head.shape;
    int first_row = starts[blockIdx.y], end = starts[blockIdx.y + 1], size = shape.value_size;
    int first = (blockIdx.z * WARPS + warp()) * COLUMNS;
    if (first >= size) return;
    bool bidirectional = shape.rule == WHOLE_SUM;
    StateColumns state = {};
    float keys[KEYS] = {}, key[KEYS], query[KEYS], differences[COLUMNS];
    auto update = [&](int row) {
        head.key(key, row);
        update_state(head, row, first, key, state, differences);
        add_scaled(keys, key, 1);
    };
    for (int row = first_row; bidirectional && row < end; row++) update(row);
    for (int row = first_row; row < end; row++) {
        if (!bidirectional) update(row);
        head.query(query, row);
        float sum = shape.rule == DELTA ? 1 : dot(query, keys) + EPSILON;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            float output = dot(query, state[c]) / sum;
            if (lane() == 0 && first + c < size) {
                from_f32(out[((long long)row * shape.heads + head.head) * size + first + c], output);
            }
        }
    }
}

// Gradients of the inputs of each head, as f32, per head; and for each row and head, the denominator of its
// outputs and the dot product of its outputs with their gradients.
struct InputGradients {
    float *queries, *keys, *values, *decays, *rates, *sums;
};

// Lines of LANES elements that a stored column takes.
__device__ __forceinline__ int lines_of(const Shape& shape) { return (shape.key_size + LANES - 1) / LANES; }

// Elements of the columns that a block owns at a time.
__device__ __forceinline__ long long state_len(const Shape& shape) {
    return (long long)WARPS * COLUMNS * LANES * lines_of(shape);
}

__device__ __forceinline__ void store_state(float* to, const Shape& shape, const StateColumns& state) {
    int lines = lines_of(shape);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            if (j < lines) to[((warp() * COLUMNS + c) * lines + j) * LANES + lane()] = state[c][j];
        }
    }
}

__device__ __forceinline__ void load_state(StateColumns& state, const Shape& shape, const float* from) {
    int lines = lines_of(shape);
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            state[c][j] = j < lines ? from[((warp() * COLUMNS + c) * lines + j) * LANES + lane()] : 0;
        }
    }
}

// Contributions of the warps of a block to a row, which the block adds up.
struct WarpSums {
    float queries[WARPS][KEYS * LANES];
    float keys[WARPS][KEYS * LANES];
    float decays[WARPS];
    float rates[WARPS];
};

// Adds the contributions of all warps to the gradients of a row and head; all threads of the block must call
// it.
__device__ __forceinline__ void reduce_warps(const WarpSums& warp_sums, const InputGradients& gradients, long long place, int key_size,
                                          bool add) {
    sync_block();
    for (int i = threadIdx.x; i < key_size; i += WARPS * LANES) {
        float query = 0, key = 0;
        for (int w = 0; w < WARPS; w++) {
            query += warp_sums.queries[w][i];
            key += warp_sums.keys[w][i];
        }
        store_or_accumulate(gradients.queries[place * key_size + i], query, add);
        store_or_accumulate(gradients.keys[place * key_size + i], key, add);
    }
    if (threadIdx.x == 0 && gradients.decays) {
        float decay = 0, rate = 0;
        for (int w = 0; w < WARPS; w++) {
            decay += warp_sums.decays[w];
            rate += warp_sums.rates[w];
        }
        store_or_accumulate(gradients.decays[place], decay, add);
        store_or_accumulate(gradients.rates[place], rate, add);
    }
    sync_block();
}

// Backward pass of a head of a sequence, one group of columns after the other. `states` has room for the
// state before every chunk of the batch's sequences, `recent` for the state before each token of a chunk, up
// to `rows_stored` per sequence; with bidirectional attention (WHOLE_SUM), neither is used.
template <class T>
__device__ void linear_attention_backward(const Head<T>& head, const int* starts, const T* gradient, const InputGradients& gradients, float* states,
                           float* recent, int rows_stored) {
    __shared__ WarpSums warp_sums;
    __shared__ float parts[WARPS];
    const Shape& shape = head.shape;
    int sequence = blockIdx.y, first_row = starts[sequence], end = starts[sequence + 1];
    bool bidirectional = shape.rule == WHOLE_SUM, delta = shape.rule == DELTA;
    long long state_size = state_len(shape);
    recent += ((long long)sequence * shape.heads + head.head) * rows_stored * state_size;
    // Each sequence starts a new chunk.
    auto stored_state = [&](int row) {
        long long chunk = first_row / CHUNK + sequence + (row - first_row) / CHUNK;
        return states + (chunk * shape.heads + head.head) * state_size;
    };
    auto place = [&](int row) { return (long long)row * shape.heads + head.head; };
    int columns = state_columns(shape), size = shape.value_size;
    float key[KEYS], query[KEYS], differences[COLUMNS];
    for (int group = 0; group < columns; group += WARPS * COLUMNS) {
        int first = group + warp() * COLUMNS;
        auto output_grad = [&](int row, int column) {
            return column < size ? to_f32(gradient[place(row) * size + column]) : 0;
        };
        // Forward: stores the state before each chunk, and the denominators of the outputs.
        StateColumns state = {};
        float keys[KEYS] = {};
        auto update = [&](int row) {
            head.key(key, row);
            update_state(head, row, first, key, state, differences);
            add_scaled(keys, key, 1);
        };
        for (int row = first_row; bidirectional && row < end; row++) update(row);
        for (int row = first_row; row < end; row++) {
            if (!bidirectional) {
                if ((row - first_row) % CHUNK == 0) store_state(stored_state(row), shape, state);
                update(row);
            }
            if (delta) continue;
            head.query(query, row);
            float sum = dot(query, keys) + EPSILON, inner = 0;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) inner += dot(query, state[c]) * output_grad(row, first + c);
            if (lane() == 0) parts[warp()] = inner / sum;
            sync_block();
            if (threadIdx.x == 0) {
                for (int w = 1; w < WARPS; w++) parts[0] += parts[w];
                gradients.sums[2 * place(row)] = sum;
                store_or_accumulate(gradients.sums[2 * place(row) + 1], parts[0], group > 0);
            }
            sync_block();
        }
        // Backward. `state_gradient` is the gradient of the state.
        StateColumns state_grad = {};
        // Accumulates the gradients of the state, through the outputs, and of the query.
        auto query_backward = [&](int row, float (&query_grad)[KEYS]) {
            head.query(query, row);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                float of_output = output_grad(row, first + c);
                if (!delta) {
                    float sum = gradients.sums[2 * place(row)];
                    of_output = (first + c == size ? -gradients.sums[2 * place(row) + 1] : of_output) / sum;
                }
                add_scaled(query_grad, state[c], of_output);
                add_scaled(state_grad[c], query, of_output);
            }
        };
        auto store_row = [&](float (&rows)[WARPS][KEYS * LANES], const float (&numbers)[KEYS]) {
#pragma unroll
            for (int j = 0; j < KEYS; j++) rows[warp()][j * LANES + lane()] = numbers[j];
        };
        for (int row = first_row; bidirectional && row < end; row++) {
            float query_grad[KEYS] = {}, none[KEYS] = {};
            query_backward(row, query_grad);
            store_row(warp_sums.queries, query_grad);
            store_row(warp_sums.keys, none);
            reduce_warps(warp_sums, gradients, place(row), shape.key_size, group > 0);
        }
        int chunks = (end - first_row + CHUNK - 1) / CHUNK;
        for (int chunk = chunks - 1; chunk >= 0; chunk--) {
            int begin = first_row + chunk * CHUNK, stop = min(begin + CHUNK, end);
            if (!bidirectional) {
                load_state(state, shape, stored_state(begin));
                for (int row = begin; row < stop; row++) {
                    store_state(recent + (row - begin) * state_size, shape, state);
                    update(row);
                }
            }
            for (int row = stop - 1; row >= begin; row--) {
                float query_grad[KEYS] = {}, key_grad[KEYS] = {}, of_decay = 0, of_rate = 0;
                const float* before = recent + (row - begin) * state_size;
                if (!bidirectional) load_state(state, shape, before);
                head.key(key, row);
                if (!bidirectional) {
                    update_state(head, row, first, key, state, differences);
                    query_backward(row, query_grad);
                    load_state(state, shape, before);
                } else {
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) differences[c] = head.value(row, first + c);
                }
                float decay = head.decay(row), rate = head.rate(row);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    add_scaled(key_grad, state_grad[c], differences[c] * rate);
                    float of_change = dot(key, state_grad[c]);
                    if (lane() == 0 && first + c < size) gradients.values[place(row) * size + first + c] = of_change * rate;
                    if (!delta) continue;
                    of_rate += of_change * differences[c];
                    add_scaled(key_grad, state[c], -of_change * rate * decay);
                    add_scaled(state_grad[c], key, -of_change * rate);
                    of_decay += dot(state_grad[c], state[c]);
#pragma unroll
                    for (int j = 0; j < KEYS; j++) state_grad[c][j] *= decay;
                }
                store_row(warp_sums.queries, query_grad);
                store_row(warp_sums.keys, key_grad);
                if (lane() == 0) {
                    warp_sums.decays[warp()] = shape.logarithm ? of_decay * decay : of_decay;
                    warp_sums.rates[warp()] = of_rate;
                }
                reduce_warps(warp_sums, gradients, place(row), shape.key_size, group > 0 || bidirectional);
            }
        }
    }
}

// Sums gradients over the heads that share the same columns (GQA).
template <class T>
__device__ void sum_shared_heads(const float* gradients, T* to, int add, int rows, int columns, int heads, int size) {
    for_each_element_2d<T>(rows, columns, false, [&](int row, int column, auto) {
        int sharing = heads * size / columns;
        const float* from = gradients + ((long long)row * heads + column / size * sharing) * size + column % size;
        float sum = 0;
        for (int i = 0; i < sharing; i++) sum += from[i * size];
        store_or_accumulate(to[(long long)row * columns + column], sum, add);
    });
}

#define HEAD(T)                                                                                                      \
    (Head<T>{{queries, keys, values, decays, rates},                                                                 \
             {heads, query_heads, key_heads, value_heads, key_size, value_size, rule, logarithm},                  \
             (int)blockIdx.x})

#define KERNELS(T, type)                                                                                             \
    ENTRY(linear_attention_##type, WARPS* LANES,                                                                                \
          (const T* queries, const T* keys, const T* values, const T* decays, const T* rates, int heads,             \
           int query_heads, int key_heads, int value_heads, int key_size, int value_size, int rule, int logarithm, \
           const int* starts, T* out),                                                                               \
          linear_attention(HEAD(T), starts, out))                                                                               \
    ENTRY(linear_attention_backward_##type, WARPS* LANES,                                                                           \
          (const T* queries, const T* keys, const T* values, const T* decays, const T* rates, int heads,             \
           int query_heads, int key_heads, int value_heads, int key_size, int value_size, int rule, int logarithm, \
           const int* starts, const T* gradient, float* query_grads, float* key_grads, float* value_grads,       \
           float* decay_grads, float* rate_grads, float* sums, float* states, float* recent, int rows_stored),       \
          linear_attention_backward(HEAD(T), starts, gradient,                                                                      \
                     InputGradients{query_grads, key_grads, value_grads, decay_grads, rate_grads, sums}, states, recent, \
                     rows_stored))                                                                                     \
    ENTRY(sum_shared_heads_##type, 256,                                                                                  \
          (const float* gradients, T* to, int add, int rows, int columns, int heads, int size),                          \
          sum_shared_heads(gradients, to, add, rows, columns, heads, size))
FOR_EACH_TYPE(KERNELS)
