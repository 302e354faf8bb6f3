// Matmuls of quantized activation rows with panels; kernels/src/ops/matmul/mod.rs has the contract. Integer dot products
// of sub-blocks are exact in any order; the sums over sub-blocks are one chain of fused multiply-adds per output.
#pragma once

#include "panel.cuh"

// A matrix of a launch: its outputs go to `out`, after a bias and a residual if there are any. Launches of several
// matrices number their panels consecutively.
struct MatmulPart {
    const byte* weights;
    const float* bias;
    float* out;
    const float* residual;
    int out_stride, residual_stride;
    int outputs, first_panel;
};

#define MATMUL_PARAMETERS \
    (const MatmulPart* parts, int part_count, const int* input, const int* row_count, int macros)
#define MATMUL_ARGUMENTS parts, part_count, input, *row_count, macros

// The quantized rows; see QuantizedRowLayout in kernels/src/ops/quantize/mod.rs.
struct QuantizedRows {
    const int* words;
    int padded;
    __device__ __forceinline__ QuantizedRows(const int* words, int columns)
        : words(words), padded((columns + 255) / 256 * 256) {}
    __device__ __forceinline__ const int* row(int row) const { return words + (long long)row * (padded / 8 * 3); }
    __device__ __forceinline__ const float* scales(int r) const {
        return reinterpret_cast<const float*>(row(r) + padded / 4);
    }
    __device__ __forceinline__ const float* scaled_sums(int r) const { return scales(r) + padded / 32; }
    __device__ __forceinline__ const int* sums(int r) const { return row(r) + padded / 4 + padded / 16; }
};

__device__ __forceinline__ const MatmulPart& part_of_panel(const MatmulPart* parts, int part_count, int panel) {
    int part = part_count - 1;
    while (parts[part].first_panel > panel) part--;
    return parts[part];
}

__device__ __forceinline__ void store_output(const MatmulPart& part, int row, int output, float sum) {
    if (part.bias) sum = sum + part.bias[output];
    if (part.residual) sum = part.residual[(long long)row * part.residual_stride + output] + sum;
    part.out[(long long)row * part.out_stride + output] = sum;
}

template <class P> __device__ __forceinline__ const byte* macro_planes(const byte* panel, int macro) {
    return panel + (long long)(macro / P::MACROS) * P::BLOCK + P::HEAD + macro % P::MACROS * P::MACRO;
}

template <class P> __device__ __forceinline__ const byte* block_of_macro(const byte* panel, int macro) {
    return panel + (long long)(macro / P::MACROS) * P::BLOCK;
}

template <class P> __device__ __forceinline__ long long panel_bytes(int macros) {
    return (long long)(macros / P::MACROS) * P::BLOCK + P::ROW_SCALES;
}

// The part of b's columns that lies in sub-block `sub` of 16 columns, of half a macro-block.
__device__ __forceinline__ WordPair half_of_columns(WordPair b, int sub) {
    return lane() % 4 / 2 == sub ? b : WordPair{0, 0};
}

// Up to ROWS rows, of which there are at most eight. A block computes one panel. Its warps take macro-blocks by turns: a
// round covers WARPS · UNITS of them. The integer sums of a round go to shared memory, from where one thread for each
// output continues its chain while the others begin the next round.
template <class P, int ROWS> struct FewRows {
    static constexpr int WARPS = 8, UNITS = ROWS == 1 ? 2 : 1;
    static constexpr int ROUND_MACROS = WARPS * UNITS, ROUND_SUBS = ROUND_MACROS * P::SUBS;
    // Sums that a lane keeps of each product: rows 2g and 2g + 1 of the panel, and activation rows 2t and 2t + 1.
    static constexpr int SUMS = ROWS == 1 ? 2 : 4;

    // What a round leaves in shared memory.
    struct Round {
        float dots[ROUND_SUBS][PANEL_ROWS * ROWS];
        float scales[ROUND_SUBS][PANEL_ROWS];
        float minimums[P::HAS_MINIMUM ? ROUND_SUBS : 1][PANEL_ROWS];
        float row_scales[ROUND_SUBS][ROWS];
        float row_sums[P::HAS_MINIMUM ? ROUND_SUBS : 1][ROWS];
    };

    // A macro-block, loaded before it is needed.
    struct Unit {
        PanelWords<P> halves[2];
        WordPair columns[2];
        ScaleFields fields[P::SUBS / 2];
        float row_scale, row_sum;
    };

    static __device__ __forceinline__ void load(Unit& unit, const byte* panel, const QuantizedRows& rows, int row_count, int macro) {
        const byte* planes = macro_planes<P>(panel, macro);
        const byte* block = block_of_macro<P>(panel, macro);
        int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unit.halves[half] = load_panel_words<P>(planes, half);
            unit.columns[half] = {0, 0};
            if (g < row_count) {
                unit.columns[half] = reinterpret_cast<const WordPair*>(rows.row(g) + macro * 16 + half * 8)[t];
            }
        }
        if constexpr (!P::IS_ROW) {
#pragma unroll
            for (int i = 0; i < P::SUBS / 2; i++) {
                unit.fields[i] = P::fields(block, macro % P::MACROS, lane() / 16 + 2 * i, lane() % 16);
            }
            // Lane sub · ROWS + row has the scale of an activation row in a sub-block.
            int sub = lane() / ROWS, row = lane() % ROWS;
            if (sub < P::SUBS && row < row_count) {
                unit.row_scale = rows.scales(row)[macro * 2 + sub * P::SUB / 32];
                if constexpr (P::HAS_MINIMUM) {
                    if constexpr (P::SUB == 32) unit.row_sum = rows.scaled_sums(row)[macro * 2 + sub];
                    else unit.row_sum = unit.row_scale * (float)rows.sums(row)[macro * 4 + sub];
                }
            }
        }
    }

    // Multiplies half a macro-block: sums of the whole half, or of sub-block `sub` of 16 columns.
    static __device__ __forceinline__ void multiply(int (&sums)[4], const unsigned (&a)[4], WordPair columns, int sub) {
        WordPair b = P::SUB == 16 ? half_of_columns(columns, sub) : columns;
        mma_bytes(sums, a, b.low, b.high);
    }

    static __device__ __forceinline__ void finish_unit(Round& round, const Unit& unit, int index) {
        int g = lane() / 4, t = lane() % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned a[4];
            panel_operand<P>(a, unit.halves[half]);
#pragma unroll
            for (int sub = 0; sub < P::SUBS / 2; sub++) {
                int sums[4] = {0, 0, 0, 0};
                multiply(sums, a, unit.columns[half], sub);
                float* dots = round.dots[index * P::SUBS + half * (P::SUBS / 2) + sub];
                if constexpr (ROWS == 1) {
                    if (t == 0) {
                        dots[2 * g] = (float)sums[0];
                        dots[2 * g + 1] = (float)sums[2];
                    }
                } else {
#pragma unroll
                    for (int i = 0; i < 4; i++) dots[(2 * g + i / 2) * ROWS + 2 * t + i % 2] = (float)sums[i];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < P::SUBS / 2; i++) {
            SubBlockScale scale = P::scale(unit.fields[i]);
            int sub = index * P::SUBS + lane() / 16 + 2 * i;
            round.scales[sub][lane() % 16] = scale.scale;
            if constexpr (P::HAS_MINIMUM) round.minimums[sub][lane() % 16] = scale.minimum;
        }
        int sub = lane() / ROWS;
        if (sub < P::SUBS) {
            round.row_scales[index * P::SUBS + sub][lane() % ROWS] = unit.row_scale;
            if constexpr (P::HAS_MINIMUM) round.row_sums[index * P::SUBS + sub][lane() % ROWS] = unit.row_sum;
        }
    }

    static __device__ __forceinline__ void run(const MatmulPart* parts, int part_count, const int* input, int row_count, int macros) {
        const MatmulPart& part = part_of_panel(parts, part_count, blockIdx.x);
        int number = blockIdx.x - part.first_panel;
        const byte* panel = part.weights + number * panel_bytes<P>(macros);
        QuantizedRows rows(input, macros * MACRO_COLUMNS);
        if constexpr (P::IS_ROW) integers(part, number, panel, rows, row_count, macros);
        else chains(part, number, panel, rows, row_count, macros);
    }

    static __device__ __forceinline__ void chains(const MatmulPart& part, int number, const byte* panel, const QuantizedRows& rows,
                                                  int row_count, int macros) {
        __shared__ Round rounds[2];
        Unit units[UNITS];
        float sum = 0.0f;
        int own_row = threadIdx.x / ROWS, own_input = threadIdx.x % ROWS;
        bool chains = threadIdx.x < PANEL_ROWS * ROWS;
        auto load_round = [&](int first) {
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                int macro = first + warp() * UNITS + u;
                if (macro < macros) load(units[u], panel, rows, row_count, macro);
            }
        };
        load_round(0);
        for (int first = 0, index = 0; first < macros; first += ROUND_MACROS, index++) {
            Round& round = rounds[index & 1];
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                if (first + warp() * UNITS + u < macros) finish_unit(round, units[u], warp() * UNITS + u);
            }
            load_round(first + ROUND_MACROS);
            sync_block();
            if (!chains) continue;
            int subs = min(macros - first, ROUND_MACROS) * P::SUBS;
#pragma unroll 4
            for (int sub = 0; sub < subs; sub++) {
                float row_scale = round.row_scales[sub][own_input];
                sum = fmaf(round.dots[sub][threadIdx.x], round.scales[sub][own_row] * row_scale, sum);
                if constexpr (P::HAS_MINIMUM) {
                    sum = fmaf(round.minimums[sub][own_row], round.row_sums[sub][own_input], sum);
                }
            }
        }
        int output = number * PANEL_ROWS + own_row;
        if (chains && own_input < row_count && output < part.outputs) store_output(part, own_input, output, sum);
    }

    // Row types: all products of an output are one integer sum.
    static __device__ __forceinline__ void integers(const MatmulPart& part, int number, const byte* panel, const QuantizedRows& rows,
                                                    int row_count, int macros) {
        __shared__ int totals[WARPS][PANEL_ROWS * ROWS];
        int g = lane() / 4, t = lane() % 4;
        int sums[4] = {0, 0, 0, 0};
        Unit units[UNITS];
        auto load_round = [&](int first) {
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                int macro = first + warp() * UNITS + u;
                if (macro < macros) load(units[u], panel, rows, row_count, macro);
            }
        };
        load_round(0);
        for (int first = 0; first < macros; first += ROUND_MACROS) {
            Unit loaded[UNITS];
#pragma unroll
            for (int u = 0; u < UNITS; u++) loaded[u] = units[u];
            load_round(first + ROUND_MACROS);
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                int macro = first + warp() * UNITS + u;
                if (macro >= macros) continue;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    unsigned a[4];
                    panel_operand<P>(a, loaded[u].halves[half]);
                    if constexpr (P::SUB == 32) {
                        mma_bytes(sums, a, loaded[u].columns[half].low, loaded[u].columns[half].high);
                    } else {
                        const byte* block = block_of_macro<P>(panel, macro);
#pragma unroll
                        for (int sub = 0; sub < 2; sub++) {
                            int dots[4] = {0, 0, 0, 0};
                            multiply(dots, a, loaded[u].columns[half], sub);
#pragma unroll
                            for (int i = 0; i < 4; i++) {
                                sums[i] += dots[i] * P::factor(block, macro % P::MACROS, 2 * half + sub, 2 * g + i / 2);
                            }
                        }
                    }
                }
            }
        }
        if constexpr (ROWS == 1) {
            if (t == 0) {
                totals[warp()][2 * g] = sums[0];
                totals[warp()][2 * g + 1] = sums[2];
            }
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++) totals[warp()][(2 * g + i / 2) * ROWS + 2 * t + i % 2] = sums[i];
        }
        sync_block();
        int own_row = threadIdx.x / ROWS, own_input = threadIdx.x % ROWS, output = number * PANEL_ROWS + own_row;
        if (threadIdx.x >= PANEL_ROWS * ROWS || own_input >= row_count || output >= part.outputs) return;
        int total = 0;
        for (int i = 0; i < WARPS; i++) total += totals[i][threadIdx.x];
        float scale = P::row_scale(panel + panel_bytes<P>(macros) - P::ROW_SCALES, own_row);
        store_output(part, own_input, output, (float)total * (scale * rows.scales(own_input)[0]));
    }
};

// Many rows: a block computes 64 rows times 8 panels, a warp each. Activations of 256 columns at a time are copied to
// shared memory while the previous ones are multiplied; weights go from global memory to registers.
template <class P> struct ManyRows {
    static constexpr int WARPS = 8, TILE = 64, TILES = TILE / 8, STAGES = 2;
    // Padded so that the lanes of a warp read different banks.
    static constexpr int ROW_BYTES = 256 + 32, SCALE_BYTES = 32, SUM_BYTES = P::HAS_MINIMUM ? (P::SUB == 16 ? 64 : 32) : 0;
    static constexpr int STAGE = TILE * (ROW_BYTES + SCALE_BYTES + SUM_BYTES);

    static __device__ __forceinline__ void copy_stage(unsigned char* stage, const QuantizedRows& rows, int first, int row_count, int block) {
        constexpr int CHUNKS = 16 + (SCALE_BYTES + SUM_BYTES) / 16;
        for (int i = threadIdx.x; i < TILE * CHUNKS; i += WARPS * LANES) {
            int row = i / CHUNKS, chunk = i % CHUNKS;
            bool there = first + row < row_count;
            int from_row = there ? first + row : first;
            if (chunk < 16) {
                cp_async(stage + row * ROW_BYTES + 16 * chunk, rows.row(from_row) + block * 64 + 4 * chunk, there);
            } else if (chunk < 18) {
                cp_async(stage + TILE * ROW_BYTES + row * SCALE_BYTES + 16 * (chunk - 16),
                         rows.scales(from_row) + block * 8 + 4 * (chunk - 16), there);
            } else {
                const void* sums = P::SUB == 16 ? (const void*)(rows.sums(from_row) + block * 16 + 4 * (chunk - 18))
                                                : (const void*)(rows.scaled_sums(from_row) + block * 8 + 4 * (chunk - 18));
                cp_async(stage + TILE * (ROW_BYTES + SCALE_BYTES) + row * SUM_BYTES + 16 * (chunk - 18), sums, there);
            }
        }
    }

    static __device__ __forceinline__ void run(const MatmulPart* parts, int part_count, const int* input, int row_count, int macros) {
        int first_row = blockIdx.y * TILE;
        if (first_row >= row_count) return;
        unsigned char* stages = dynamic_shared_memory();
        int last_panel = parts[part_count - 1].first_panel + (parts[part_count - 1].outputs + PANEL_ROWS - 1) / PANEL_ROWS - 1;
        int own_panel = blockIdx.x * WARPS + warp();
        bool has_panel = own_panel <= last_panel;
        const MatmulPart& part = part_of_panel(parts, part_count, has_panel ? own_panel : last_panel);
        int number = (has_panel ? own_panel : last_panel) - part.first_panel;
        const byte* panel = part.weights + number * panel_bytes<P>(macros);
        QuantizedRows rows(input, macros * MACRO_COLUMNS);
        int g = lane() / 4, t = lane() % 4;
        float chains[P::IS_ROW ? 1 : TILES][4];
        int totals[P::IS_ROW ? TILES : 1][4];
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if constexpr (P::IS_ROW) totals[n][i] = 0;
                else chains[n][i] = 0.0f;
            }
        }
        int blocks = (macros + 3) / 4;
        copy_stage(stages, rows, first_row, row_count, 0);
        cp_async_commit();
        PanelWords<P> words[2] = {load_panel_words<P>(macro_planes<P>(panel, 0), 0), load_panel_words<P>(macro_planes<P>(panel, 0), 1)};
        for (int block = 0; block < blocks; block++) {
            if (block + 1 < blocks) copy_stage(stages + (block + 1) % STAGES * STAGE, rows, first_row, row_count, block + 1);
            cp_async_commit();
            cp_async_wait<1>();
            sync_block();
            const unsigned char* stage = stages + block % STAGES * STAGE;
            int end = min(4, macros - block * 4);
            for (int m = 0; m < end; m++) {
                int macro = block * 4 + m;
                const byte* fields = block_of_macro<P>(panel, macro);
                unsigned a[2][4];
                panel_operand<P>(a[0], words[0]);
                panel_operand<P>(a[1], words[1]);
                if (macro + 1 < macros) {
                    words[0] = load_panel_words<P>(macro_planes<P>(panel, macro + 1), 0);
                    words[1] = load_panel_words<P>(macro_planes<P>(panel, macro + 1), 1);
                }
#pragma unroll
                for (int sub = 0; sub < P::SUBS; sub++) {
                    constexpr int PER_HALF = P::SUBS / 2;
                    int half = sub / PER_HALF;
                    SubBlockScale scales[2] = {};
                    int factors[2] = {};
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        if constexpr (P::IS_ROW) factors[i] = P::factor(fields, macro % P::MACROS, sub, 2 * g + i);
                        else scales[i] = P::scale(P::fields(fields, macro % P::MACROS, sub, 2 * g + i));
                    }
#pragma unroll
                    for (int n = 0; n < TILES; n++) {
                        WordPair b = *reinterpret_cast<const WordPair*>(stage + (n * 8 + g) * ROW_BYTES + 64 * m + 32 * half + 8 * t);
                        if constexpr (P::SUB == 16) b = half_of_columns(b, sub % PER_HALF);
                        if constexpr (P::IS_ROW && P::SUB == 32) {
                            mma_bytes(totals[n], a[half], b.low, b.high);
                        } else {
                            int dots[4] = {0, 0, 0, 0};
                            mma_bytes(dots, a[half], b.low, b.high);
                            if constexpr (P::IS_ROW) {
#pragma unroll
                                for (int i = 0; i < 4; i++) totals[n][i] += dots[i] * factors[i / 2];
                            } else {
                                add(chains[n], dots, scales, stage, n * 8 + 2 * t, m, sub);
                            }
                        }
                    }
                }
            }
            sync_block();
        }
        if (!has_panel) return;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = first_row + n * 8 + 2 * t + i % 2, own_row = 2 * g + i / 2, output = number * PANEL_ROWS + own_row;
                if (row >= row_count || output >= part.outputs) continue;
                if constexpr (P::IS_ROW) {
                    float scale = P::row_scale(panel + panel_bytes<P>(macros) - P::ROW_SCALES, own_row);
                    store_output(part, row, output, (float)totals[n][i] * (scale * rows.scales(row)[0]));
                } else {
                    store_output(part, row, output, chains[n][i]);
                }
            }
        }
    }

    // Continues the chains of four outputs by a sub-block of macro-block `m` of the stage.
    static __device__ __forceinline__ void add(float (&sums)[4], const int (&dots)[4], const SubBlockScale (&scales)[2],
                                               const unsigned char* stage, int row, int m, int sub) {
        const float* row_scales = reinterpret_cast<const float*>(stage + TILE * ROW_BYTES + row * SCALE_BYTES);
        constexpr int NEXT = SCALE_BYTES / 4;
        int at = m * 2 + sub * P::SUB / 32;
        float row_scale[2] = {row_scales[at], row_scales[NEXT + at]};
        float row_sum[2] = {0.0f, 0.0f};
        if constexpr (P::HAS_MINIMUM) {
            const unsigned char* place = stage + TILE * (ROW_BYTES + SCALE_BYTES) + row * SUM_BYTES;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if constexpr (P::SUB == 32) row_sum[i] = reinterpret_cast<const float*>(place + i * SUM_BYTES)[m * 2 + sub];
                else row_sum[i] = row_scale[i] * (float)reinterpret_cast<const int*>(place + i * SUM_BYTES)[m * 4 + sub];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums[i] = fmaf((float)dots[i], scales[i / 2].scale * row_scale[i % 2], sums[i]);
            if constexpr (P::HAS_MINIMUM) sums[i] = fmaf(scales[i / 2].minimum, row_sum[i % 2], sums[i]);
        }
    }
};

// The bodies of kernels for one row, for up to eight, and for more.
#define MATMUL_ONE(P) (FewRows<P, 1>::run(MATMUL_ARGUMENTS))
#define MATMUL_FEW(P) (FewRows<P, 8>::run(MATMUL_ARGUMENTS))
#define MATMUL_MANY(P) (ManyRows<P>::run(MATMUL_ARGUMENTS))
