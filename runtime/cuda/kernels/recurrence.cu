// Recurrent states of sequences, in blocks of the KV cache: kernels/src/ops/recurrence/mod.rs and runtime/backend/src/state.rs.
// A state is read from one block, or begins with zeros, and written to another; the rows of a sequence follow one another.
#include "exact.cuh"
#include "libm.cuh"

// Where the states are, and the rows of each sequence.
struct SequenceStates {
    float* pool;
    long long block_words;
    // Words from the start of a block to the state.
    int offset;
    const int* sequence_count;
    // By sequence: the block that is read, negative if there is none, and the one that is written.
    const int* blocks;
    // By sequence: the index of its first row in `rows`; then the end of the last one's.
    const int *starts, *rows;

    __device__ __forceinline__ float* written(int sequence) const { return pool + blocks[2 * sequence + 1] * block_words + offset; }
    __device__ __forceinline__ const float* read(int sequence) const {
        int block = blocks[2 * sequence];
        return block < 0 ? nullptr : pool + block * block_words + offset;
    }
};

#define STATE_PARAMETERS \
    float *pool, long long block_words, int offset, const int *sequence_count, const int *blocks, const int *starts, const int *rows
#define STATES SequenceStates{pool, block_words, offset, sequence_count, blocks, starts, rows}

// Columns of a convolution whose history is stored together.
#define HISTORY_COLUMNS 256

// A block for each sequence and part of the columns, a thread for each column.
__device__ __forceinline__ void convolve(const SequenceStates& states, int taps, const float* weights, const float* from, int stride,
                                         float* out, int out_stride, int columns) {
    int sequence = blockIdx.x, first = blockIdx.y * HISTORY_COLUMNS, column = first + threadIdx.x;
    if (sequence >= *states.sequence_count || column >= columns) return;
    int together = min(HISTORY_COLUMNS, columns - first), start = first * (taps - 1) + threadIdx.x;
    float* history = states.written(sequence) + start;
    const float* before = states.read(sequence);
    for (int tap = 0; tap < taps - 1; tap++) history[tap * together] = before ? before[start + tap * together] : 0.0f;
    const float* own = weights + (long long)column * taps;
    for (int index = states.starts[sequence]; index < states.starts[sequence + 1]; index++) {
        long long row = states.rows[index];
        float x = from[row * stride + column], sum = 0.0f;
        for (int tap = 0; tap < taps - 1; tap++) {
            float past = history[tap * together];
            sum = sum + own[tap] * past;
            if (tap > 0) history[(tap - 1) * together] = past;
        }
        out[row * out_stride + column] = sum + own[taps - 1] * x;
        if (taps > 1) history[(taps - 2) * together] = x;
    }
}

ENTRY(convolve_sequences, HISTORY_COLUMNS,
      (STATE_PARAMETERS, int taps, const float* weights, const float* from, int stride, float* out, int out_stride, int columns),
      convolve(STATES, taps, weights, from, stride, out, out_stride, columns))

// Columns of a state that are stored together.
#define STATE_COLUMNS 16
// Added to the denominator of additive rules.
#define NORMALIZER_EPSILON 1e-6f

// Update rules, numbered as in runtime/cuda-backend/src/lowering.rs.
enum UpdateRule { UPDATE_ADDITIVE, UPDATE_BIDIRECTIONAL_ADDITIVE, UPDATE_GATED_DELTA };

struct RecurrenceInput {
    const float* rows;
    int stride, heads;
};

struct RecurrenceCall {
    RecurrenceInput query, key, value, decay, rate;
    float* out;
    int out_stride;
    int heads, key_size, value_size;
    UpdateRule rule;
};

__device__ __forceinline__ const float* input_of_head(const RecurrenceCall& call, const RecurrenceInput& input, long long row, int head, int size) {
    return input.rows + row * input.stride + head * input.heads / call.heads * size;
}

// A block for each sequence and head; a thread computes a column at a time. Shared memory has a key and a query.
__device__ __forceinline__ void recur(const SequenceStates& states, const RecurrenceCall& call) {
    __shared__ float normalizer;
    int sequence = blockIdx.x, head = blockIdx.y;
    if (sequence >= *states.sequence_count) return;
    int size = call.key_size, values = call.value_size;
    bool is_delta = call.rule == UPDATE_GATED_DELTA;
    int columns = (values + (is_delta ? 0 : 1) + STATE_COLUMNS - 1) / STATE_COLUMNS * STATE_COLUMNS;
    float* key = reinterpret_cast<float*>(dynamic_shared_memory());
    float* query = key + size;
    float* state = states.written(sequence) + (long long)head * columns * size;
    const float* before = states.read(sequence);
    for (int i = threadIdx.x; i < columns * size; i += blockDim.x) {
        state[i] = before ? before[(long long)head * columns * size + i] : 0.0f;
    }
    int passes = call.rule == UPDATE_BIDIRECTIONAL_ADDITIVE ? 2 : 1;
    for (int pass = 0; pass < passes; pass++) {
        // With two passes, the first updates the state and the second reads it.
        bool learns = pass == 0, answers = pass == passes - 1;
        for (int index = states.starts[sequence]; index < states.starts[sequence + 1]; index++) {
            long long row = states.rows[index];
            sync_block();
            for (int i = threadIdx.x; i < size; i += blockDim.x) {
                key[i] = learns ? input_of_head(call, call.key, row, head, size)[i] : 0.0f;
                query[i] = input_of_head(call, call.query, row, head, size)[i];
            }
            sync_block();
            const float* value_row = input_of_head(call, call.value, row, head, values);
            float decay = is_delta ? *input_of_head(call, call.decay, row, head, 1) : 1.0f;
            float rate = is_delta ? *input_of_head(call, call.rate, row, head, 1) : 0.0f;
            float* out = call.out + row * call.out_stride + head * values;
            for (int column = threadIdx.x; column < columns; column += blockDim.x) {
                float* own = state + column / STATE_COLUMNS * STATE_COLUMNS * size + column % STATE_COLUMNS;
                float change = column < values ? value_row[column] : column == values && !is_delta ? 1.0f : 0.0f;
                if (is_delta) {
                    float read = 0.0f;
#pragma unroll 8
                    for (int i = 0; i < size; i++) {
                        float kept = own[i * STATE_COLUMNS] * decay;
                        own[i * STATE_COLUMNS] = kept;
                        read = fmaf(key[i], kept, read);
                    }
                    change = (change - read) * rate;
                }
                float sum = 0.0f;
#pragma unroll 8
                for (int i = 0; i < size; i++) {
                    float grown = fmaf(key[i], change, own[i * STATE_COLUMNS]);
                    own[i * STATE_COLUMNS] = grown;
                    sum = fmaf(query[i], grown, sum);
                }
                if (answers && column < values) out[column] = sum;
                if (!is_delta && column == values) normalizer = sum + NORMALIZER_EPSILON;
            }
            if (is_delta || !answers) continue;
            sync_block();
            for (int column = threadIdx.x; column < values; column += blockDim.x) out[column] = out[column] / normalizer;
        }
    }
}

ENTRY(recur_sequences, 256,
      (STATE_PARAMETERS, const float* query, int query_stride, int query_heads, const float* key, int key_stride, int key_heads,
       const float* value, int value_stride, int value_heads, const float* decay, int decay_stride, const float* rate, int rate_stride,
       float* out, int out_stride, int heads, int key_size, int value_size, int rule),
      recur(STATES, RecurrenceCall{{query, query_stride, query_heads}, {key, key_stride, key_heads}, {value, value_stride, value_heads},
                                   {decay, decay_stride, heads}, {rate, rate_stride, heads}, out, out_stride, heads, key_size, value_size,
                                   (UpdateRule)rule}))

__device__ __forceinline__ void l2_normalize(const float* x, float* out, int columns, int group, float epsilon, float norm, float* scales) {
    for (int first = threadIdx.x * group; first < columns; first += blockDim.x * group) {
        double square = 0.0;
        int end = min(first + group, columns);
#pragma unroll 8
        for (int i = first; i < end; i++) square = square + (double)x[i] * (double)x[i];
        scales[first / group] = (float)((double)norm / sqrt(square + (double)epsilon));
    }
    sync_block();
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = x[i] * scales[i / group];
}

// Scales groups of columns of a row to an L2 norm. Shared memory has a float for each group.
ENTRY(l2_normalize_rows, 128,
      (const float* from, int stride, float* out, int out_stride, int columns, int group, float epsilon, float norm, const int* row_count), {
    long long row = blockIdx.x;
    if (row >= *row_count) return;
    float* scales = reinterpret_cast<float*>(dynamic_shared_memory());
    l2_normalize(from + row * stride, out + row * out_stride, columns, group, epsilon, norm, scales);
})

// Decays between 0 and 1: exp(−exp(log) · softplus(x + bias)).
ENTRY(decay_gate_rows, 128,
      (const float* from, int stride, float* out, int out_stride, int columns, const float* log, const float* bias, const int* row_count), {
    long long row = blockIdx.x;
    if (row >= *row_count) return;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        float sum = from[row * stride + i] + bias[i];
        float softplus = sum > 20.0f ? sum : log1p_libm(exp_libm(sum));
        out[row * out_stride + i] = exp_libm(-exp_libm(log[i]) * softplus);
    }
})
