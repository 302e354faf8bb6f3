// Operations that compute each row of activations by itself. A launch interprets a list of operations: a block computes
// all of them, one after the other, for some columns of one row. What an operation reads at other columns was computed by
// an earlier launch.
#include "exact.cuh"
#include "kv_cache.cuh"
#include "panel.cuh"

#define ROW_THREADS 256
#define ROW_WARPS (ROW_THREADS / LANES)

// What an operation does; numbered as RowOpCode in runtime/cuda-backend/src/row_ops.rs.
enum RowOpCode {
    ROW_COPY,
    ROW_SELECT,
    ROW_EMBED,
    ROW_NORM,
    ROW_ROPE,
    ROW_POINTWISE,
    ROW_GATE,
    ROW_CLAMPED_GATE,
    ROW_ADD,
    ROW_AFFINE,
    ROW_REPEAT_COLUMNS,
    ROW_QUANTIZE,
    ROW_QUANTIZE_ROTATED,
    ROW_STORE_KV,
};

// An operation: rows of `from` and `other` are `stride` words apart, like those of `to`, which has `columns`.
struct RowOp {
    long long code;
    const float* from;
    long long from_stride;
    const float* other;
    long long other_stride;
    float* to;
    long long to_stride;
    long long columns;
    long long parameters[8];
};

// The columns of a row that a block computes; both ends are multiples of 256.
struct ColumnRange {
    int begin, end;
};

__device__ __forceinline__ float float_parameter(const RowOp& op, int index) {
    return __uint_as_float((unsigned)op.parameters[index]);
}

template <class T> __device__ __forceinline__ const T* pointer_parameter(const RowOp& op, int index) {
    return reinterpret_cast<const T*>(op.parameters[index]);
}

// Hadamard transform of 64 elements, two per lane: x[0] is element `lane`, x[1] element `lane` + 32.
__device__ __forceinline__ void transform_64(float (&x)[2]) {
#pragma unroll
    for (int apart = 1; apart < LANES; apart *= 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float other = shuffle_xor(x[i], apart);
            x[i] = lane() & apart ? other - x[i] : x[i] + other;
        }
    }
    float low = x[0] + x[1], high = x[0] - x[1];
    x[0] = low;
    x[1] = high;
}

template <class P> __device__ __forceinline__ void look_up_blocks(const byte* panel, int row, float* out, ColumnRange range) {
    for (int column = range.begin + threadIdx.x; column < range.end; column += ROW_THREADS) {
        int macro = column / MACRO_COLUMNS, within = column % MACRO_COLUMNS;
        const byte* block = panel + (long long)(macro / P::MACROS) * P::BLOCK;
        int in_block = macro % P::MACROS;
        SubBlockScale scale = P::scale(P::fields(block, in_block, within / P::SUB, row));
        float value = scale.scale * (float)panel_integer<P>(block + P::HEAD + in_block * P::MACRO, row, within);
        out[column] = P::HAS_MINIMUM ? value + scale.minimum : value;
    }
}

template <class P>
__device__ __forceinline__ void look_up_rotated(const byte* panel, int row, float* out, int columns, ColumnRange range) {
    int macros = (columns + MACRO_COLUMNS - 1) / MACRO_COLUMNS;
    float scale = P::row_scale(panel + (long long)macros * P::BLOCK, row) * 0.125f;
    for (int macro = range.begin / MACRO_COLUMNS + warp(); macro * MACRO_COLUMNS < range.end; macro += ROW_WARPS) {
        const byte* block = panel + (long long)macro * P::BLOCK;
        float x[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int column = lane() + LANES * i;
            int number = panel_integer<P>(block, row, column) * P::factor(block, 0, column / P::SUB, row);
            x[i] = (float)number;
        }
        transform_64(x);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int column = macro * MACRO_COLUMNS + lane() + LANES * i;
            if (column < columns) out[column] = x[i] * scale;
        }
    }
}

// Looks up a row of a packed table. Parameters: ids, offset of ids, panel type, panels, bytes of a panel, number of rows.
__device__ __forceinline__ void embed(const RowOp& op, int row, float* out, ColumnRange range) {
    int columns = (int)op.columns;
    long long id = pointer_parameter<int>(op, 0)[row] + op.parameters[1];
    if (id >= (op.parameters[5] + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS) {
        // A padding row may be beyond the last position.
        for (int column = range.begin + threadIdx.x; column < range.end; column += ROW_THREADS) out[column] = 0.0f;
        return;
    }
    const byte* panel = pointer_parameter<byte>(op, 3) + id / PANEL_ROWS * op.parameters[4];
    int own = (int)(id % PANEL_ROWS);
    switch (op.parameters[2]) {
    case 0:
        for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) {
            out[i] = reinterpret_cast<const float*>(panel)[i * PANEL_ROWS + own];
        }
        break;
    case 1:
        for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) {
            out[i] = to_f32(reinterpret_cast<const f16*>(panel)[(i / 2 * PANEL_ROWS + own) * 2 + i % 2]);
        }
        break;
    case 2:
        for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) {
            out[i] = to_f32(reinterpret_cast<const bf16*>(panel)[(i / 2 * PANEL_ROWS + own) * 2 + i % 2]);
        }
        break;
    case 3: look_up_blocks<Q8>(panel, own, out, range); break;
    case 4: look_up_blocks<Q8S16>(panel, own, out, range); break;
    case 5: look_up_blocks<Q4>(panel, own, out, range); break;
    case 6: look_up_blocks<Q4M>(panel, own, out, range); break;
    case 7: look_up_blocks<Q4NL>(panel, own, out, range); break;
    case 8: look_up_blocks<MXFP4>(panel, own, out, range); break;
    case 9: look_up_blocks<Q5>(panel, own, out, range); break;
    case 10: look_up_blocks<Q5M>(panel, own, out, range); break;
    case 11: look_up_blocks<Q4K>(panel, own, out, range); break;
    case 12: look_up_blocks<Q5K>(panel, own, out, range); break;
    case 13: look_up_blocks<Q6K>(panel, own, out, range); break;
    case 14: look_up_blocks<Q3K>(panel, own, out, range); break;
    case 15: look_up_blocks<Q2K>(panel, own, out, range); break;
    case 16: look_up_blocks<IQ4XS>(panel, own, out, range); break;
    case 17: look_up_blocks<TERNARY>(panel, own, out, range); break;
    case 18: look_up_rotated<W8R>(panel, own, out, columns, range); break;
    case 19: look_up_rotated<W4I>(panel, own, out, columns, range); break;
    }
}

// RMSNorm or LayerNorm of groups of columns. Parameters: weight, bias or null, epsilon, whether to subtract the mean, and
// columns per group. Sums run over sixteen lanes: sixteen threads compute those of a group, of each group that has columns
// of the range. `shared` has two floats for each group and, if `staged`, the columns of the groups.
__device__ __forceinline__ void norm(const RowOp& op, const float* x, float* out, float* shared, bool staged, ColumnRange range) {
    const float *weight = pointer_parameter<float>(op, 0), *bias = pointer_parameter<float>(op, 1);
    float epsilon = float_parameter(op, 2);
    bool centered = op.parameters[3] != 0;
    int group = (int)op.parameters[4], groups = (int)op.columns / group, own = threadIdx.x % 16;
    int first_group = range.begin / group, end_group = min((range.end + group - 1) / group, groups);
    float* row = shared + 2 * groups;
    if (staged) {
        for (int i = first_group * group + threadIdx.x; i < end_group * group; i += ROW_THREADS) row[i] = x[i];
        sync_block();
    }
    // Both halves of a warp take part in each shuffle.
    auto statistics = [&](auto value) {
        for (int first = first_group + threadIdx.x / LANES * 2; first < end_group; first += ROW_THREADS / 16) {
            int index = first + lane() / 16, start = min(index, groups - 1) * group;
            float mean = 0.0f;
            if (centered) {
                float sum = 0.0f;
#pragma unroll 8
                for (int i = own; i < group; i += 16) sum = sum + value(start + i);
                mean = tree_sum(sum) / (float)group;
            }
            float squares = 0.0f;
#pragma unroll 8
            for (int i = own; i < group; i += 16) {
                float centered_value = value(start + i) - mean;
                squares = fmaf(centered_value, centered_value, squares);
            }
            float scale = 1.0f / sqrtf(tree_sum(squares) / (float)group + epsilon);
            if (own == 0 && index < end_group) {
                shared[2 * index] = mean;
                shared[2 * index + 1] = scale;
            }
        }
    };
    if (staged) statistics([&](int i) { return row[i]; });
    else statistics([&](int i) { return x[i]; });
    sync_block();
    for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) {
        int index = i / group, column = i - index * group;
        float value = (x[i] - shared[2 * index]) * shared[2 * index + 1] * weight[column];
        out[i] = bias ? value + bias[column] : value;
    }
}

// Rotates pairs of columns of each head. Parameters: columns of a head, and pairs.
__device__ __forceinline__ void rope(const RowOp& op, const float* x, const float* cos_sin, float* out, ColumnRange range) {
    int size = (int)op.parameters[0], pairs = (int)op.parameters[1];
    for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) {
        int column = i % size;
        if (column < pairs) out[i] = fmaf(x[i], cos_sin[column], (0.0f - x[i + pairs]) * cos_sin[pairs + column]);
        else if (column < 2 * pairs) out[i] = fmaf(x[i], cos_sin[column - pairs], x[i - pairs] * cos_sin[column]);
        else out[i] = x[i];
    }
}

// The bytes of the four lanes that share a word, as that word.
__device__ __forceinline__ int pack_bytes(int number) {
    unsigned word = (number & 255u) << (8 * (lane() & 3));
    word |= shuffle_xor(word, 1);
    word |= shuffle_xor(word, 2);
    return (int)word;
}

// The sum over the sixteen lanes.
__device__ __forceinline__ int sum_of_16(int number) {
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) number += shuffle_xor(number, mask);
    return number;
}

// int8 with a scale per 32 columns: kernels/src/ops/quantize/mod.rs. A warp takes one block at a time. A block that is not
// finite gets a NaN scale: every product with the row is NaN, as if all blocks had one.
__device__ __forceinline__ void quantize(const float* x, int columns, int* out, ColumnRange range) {
    int padded = (columns + 255) / 256 * 256;
    int *scales = out + padded / 4, *scaled_sums = scales + padded / 32, *sums = scaled_sums + padded / 32;
    int end = min(range.end, padded) / 32;
    for (int block = range.begin / 32 + warp(); block < end; block += ROW_WARPS) {
        int column = block * 32 + lane();
        float value = column < columns ? x[column] : 0.0f;
        // Zero, or NaN if a value is not finite.
        float poison = value * 0.0f;
        float largest = absolute(value);
#pragma unroll
        for (int mask = LANES / 2; mask > 0; mask /= 2) {
            largest = larger(shuffle_xor(largest, mask), largest);
            poison += shuffle_xor(poison, mask);
        }
        IntegerScale scale = integer_scale(largest, 127.0f);
        bool is_poisoned = poison != 0.0f;
        int number = is_poisoned ? 0 : (int)round_even(value * scale.inverse);
        int word = pack_bytes(number), sum = sum_of_16(number);
        if (lane() % 4 == 0) out[column / 4] = word;
        if (lane() % 16 == 0) sums[2 * block + lane() / 16] = sum;
        int both = sum + shuffle_xor(sum, 16);
        if (lane() == 0) {
            float stored = is_poisoned ? poison : scale.scale;
            scales[block] = (int)__float_as_uint(stored);
            scaled_sums[block] = (int)__float_as_uint(stored * (float)both);
        }
    }
}

// int8 of the rotated row with one scale: kernels/src/ops/quantize/rotated.rs. A warp takes 64 columns at a time. Each
// block of threads computes the scale from the whole row. The sum of all integers is not stored: no kernel here reads it.
__device__ __forceinline__ void quantize_rotated(const float* x, int columns, int* out, float* by_warp, ColumnRange range) {
    int padded = (columns + 255) / 256 * 256, blocks = (columns + 63) / 64;
    int *scales = out + padded / 4, *sums = scales + padded / 16;
    auto transformed = [&](int block, float(&values)[2]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int column = block * 64 + lane() + LANES * i;
            values[i] = column < columns ? x[column] : 0.0f;
        }
        transform_64(values);
    };
    float largest = 0.0f, poison = 0.0f;
#pragma unroll 4
    for (int block = warp(); block < blocks; block += ROW_WARPS) {
        float values[2];
        transformed(block, values);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            poison += values[i] * 0.0f;
            largest = larger(absolute(values[i]), largest);
        }
    }
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2) {
        largest = larger(shuffle_xor(largest, mask), largest);
        poison += shuffle_xor(poison, mask);
    }
    if (lane() == 0) {
        by_warp[warp()] = largest;
        by_warp[ROW_WARPS + warp()] = poison;
    }
    sync_block();
    for (int i = 0; i < ROW_WARPS; i++) {
        largest = larger(by_warp[i], largest);
        poison += by_warp[ROW_WARPS + i];
    }
    bool is_poisoned = poison != 0.0f;
    IntegerScale scale = integer_scale(largest, 127.0f);
    float stored = is_poisoned ? poison : scale.scale * 0.125f;
    int end = min(range.end, padded);
    for (int block = range.begin / 64 + warp(); block < end / 64; block += ROW_WARPS) {
        float values[2] = {0.0f, 0.0f};
        if (block < blocks) transformed(block, values);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int number = is_poisoned ? 0 : (int)round_even(values[i] * scale.inverse);
            int word = pack_bytes(number), sum = sum_of_16(number);
            if (lane() % 4 == 0) out[block * 16 + 8 * i + lane() / 4] = word;
            if (lane() % 16 == 0) sums[block * 4 + 2 * i + lane() / 16] = sum;
        }
    }
    for (int i = range.begin / 32 + threadIdx.x; i < end / 32; i += ROW_THREADS) scales[i] = (int)__float_as_uint(stored);
}

// Appends a row's keys and values to the KV cache, in types without scales. Parameters: the pool, words of a block, words to
// the layer, words of the keys of a head, columns of a head, blocks and positions by row, and whether elements are f16.
__device__ __forceinline__ void store_kv(const RowOp& op, int row, const float* keys, const float* values, ColumnRange range) {
    KvLayer layer = {reinterpret_cast<unsigned*>(op.parameters[0]), op.parameters[1], (int)(op.parameters[2] >> 32),
                     (int)op.parameters[2]};
    int size = (int)op.parameters[3], columns = padded_columns(size);
    int block = pointer_parameter<int>(op, 4)[row], slot = pointer_parameter<int>(op, 5)[row] % KV_BLOCK;
    if (block < 0) return;
    bool is_half = op.parameters[6] != 0;
    for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) {
        int head = i / size, column = i - head * size;
        unsigned *key_words = kv_keys(layer, block, head), *value_words = key_words + layer.head_words;
        int key_at = key_element(KvType::F32, columns, slot, column), value_at = value_element(KvType::F32, columns, slot, column);
        if (is_half) {
            from_f32(reinterpret_cast<f16*>(key_words)[key_at], keys[i]);
            from_f32(reinterpret_cast<f16*>(value_words)[value_at], values[i]);
        } else {
            reinterpret_cast<float*>(key_words)[key_at] = keys[i];
            reinterpret_cast<float*>(value_words)[value_at] = values[i];
        }
    }
}

__device__ __forceinline__ void run_row_op(const RowOp& op, int row, int chunk, float* shared, int shared_floats, float* by_warp) {
    const float *x = op.from + row * op.from_stride, *other = op.other + row * op.other_stride;
    float* out = op.to + row * op.to_stride;
    int columns = (int)op.columns;
    // Quantized rows have padding after their columns.
    ColumnRange chunk_range = {chunk == 0 ? 0 : (int)blockIdx.y * chunk, chunk == 0 ? 0x7fffffff : (int)blockIdx.y * chunk + chunk};
    ColumnRange range = {chunk_range.begin, min(chunk_range.end, columns)};
    auto each = [&](auto value) {
        for (int i = range.begin + threadIdx.x; i < range.end; i += ROW_THREADS) out[i] = value(i);
    };
    if (chunk_range.begin >= (columns + 255) / 256 * 256) return;
    switch (op.code) {
    case ROW_COPY: each([&](int i) { return x[i]; }); break;
    case ROW_SELECT: {
        int from = pointer_parameter<int>(op, 0)[row];
        const float* chosen = op.from + (from < 0 ? 0 : from) * op.from_stride;
        each([&](int i) { return from < 0 ? 0.0f : chosen[i]; });
        break;
    }
    case ROW_EMBED: embed(op, row, out, range); break;
    case ROW_NORM: {
        int groups = columns / (int)op.parameters[4];
        norm(op, x, out, shared, 2 * groups + columns <= shared_floats, range);
        break;
    }
    case ROW_ROPE: rope(op, x, other, out, range); break;
    case ROW_POINTWISE: {
        int function = (int)op.parameters[0];
        float parameter = float_parameter(op, 1);
        each([&](int i) { return pointwise_exact(function, parameter, x[i]); });
        break;
    }
    case ROW_GATE: {
        int function = (int)op.parameters[0];
        each([&](int i) { return pointwise_exact(function, 0.0f, x[i]) * other[i]; });
        break;
    }
    case ROW_CLAMPED_GATE: {
        float limit = float_parameter(op, 0), slope = float_parameter(op, 1);
        each([&](int i) {
            float gate = smaller(limit, x[i]), up = smaller(limit, larger(-limit, other[i]));
            return (up + 1.0f) * (gate * sigmoid_exact(gate * slope));
        });
        break;
    }
    case ROW_ADD: each([&](int i) { return x[i] + other[i]; }); break;
    case ROW_AFFINE: {
        const float *weight = pointer_parameter<float>(op, 0), *bias = pointer_parameter<float>(op, 1);
        each([&](int i) { return fmaf(x[i], weight[i], bias[i]); });
        break;
    }
    case ROW_REPEAT_COLUMNS: {
        int times = (int)op.parameters[0];
        each([&](int i) { return x[i / times]; });
        break;
    }
    case ROW_QUANTIZE: quantize(x, columns, reinterpret_cast<int*>(out), chunk_range); break;
    case ROW_QUANTIZE_ROTATED: quantize_rotated(x, columns, reinterpret_cast<int*>(out), by_warp, chunk_range); break;
    case ROW_STORE_KV: store_kv(op, row, x, other, range); break;
    }
}

// `shared_floats` floats of shared memory hold a row while it is normalized. A block computes `chunk` columns, a multiple of
// 256; 0: all.
ENTRY(row_ops, ROW_THREADS, (const RowOp* ops, int op_count, const int* row_count, int shared_floats, int chunk), {
    __shared__ float by_warp[2 * ROW_WARPS];
    if ((int)blockIdx.x >= *row_count) return;
    for (int i = 0; i < op_count; i++) {
        if (i > 0) sync_block();
        run_row_op(ops[i], (int)blockIdx.x, chunk, reinterpret_cast<float*>(dynamic_shared_memory()), shared_floats, by_warp);
    }
})
