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

__device__ __forceinline__ int total_panels(const MatmulPart* parts, int part_count) {
    const MatmulPart& last = parts[part_count - 1];
    return last.first_panel + (last.outputs + PANEL_ROWS - 1) / PANEL_ROWS;
}

template <class P> __device__ __forceinline__ const byte* panel_of_part(const MatmulPart& part, int panel, int macros) {
    return part.weights + (panel - part.first_panel) * panel_bytes<P>(macros);
}

// How the lanes of a warp divide a macro-block for one activation row: each loads some rows and columns, and after an
// exchange has the sums of RESULTS pairs of row and sub-block, so that the warp has all.
template <class P> struct LaneDots {
    static constexpr int RESULTS = P::SUBS / 2;

    // 4 bits: four rows and eight columns. 8 bits: four rows, and four columns of each half. 2 bits: two rows and sixteen
    // columns, in the first two words.
    struct Words {
        WordQuad low, next, high;
    };

    static __device__ __forceinline__ Words load(const byte* planes) {
        Words words = {};
        if constexpr (P::BITS == 2) {
            WordPair low = load_streamed(planes + 8 * lane());
            words.low = {{low.low, low.high, 0, 0}};
            if constexpr (P::HIGH_BITS == 1) {
                WordPair high = load_streamed(planes + P::LOW_PLANE + PANEL_LINE * (lane() / 16) + 8 * (lane() % 8));
                words.high = {{high.low, high.high, 0, 0}};
            }
            return words;
        }
        int line = lane() / 4, rows = 16 * (lane() % 4);
        words.low = load_streamed_quad(planes + 16 * lane());
        if constexpr (P::BITS == 8) words.next = load_streamed_quad(planes + 512 + 16 * lane());
        if constexpr (P::HIGH_BITS == 1) words.high = load_streamed_quad(planes + P::LOW_PLANE + PANEL_LINE * (line / 4) + rows);
        if constexpr (P::HIGH_BITS == 2) words.high = load_streamed_quad(planes + P::LOW_PLANE + PANEL_LINE * (line / 2) + rows);
        return words;
    }

    // The row of the panel and the sub-block of the macro-block that a result belongs to.
    static __device__ __forceinline__ int row(int result) {
        int single = 4 * (lane() % 4) + 2 * (lane() / 4 & 1) + (lane() / 8 & 1);
        if constexpr (P::BITS == 2) return 2 * (lane() % 8) + (P::SUB == 16 ? result : lane() / 8 & 1);
        if constexpr (P::BITS == 4 && P::SUB == 16) return 4 * (lane() % 4) + 2 * (lane() / 4 & 1) + result;
        return single;
    }
    static __device__ __forceinline__ int sub(int result) {
        if constexpr (P::SUB == 16) return P::BITS == 8 ? 2 * result + lane() / 16 : lane() / 8;
        return lane() / 16;
    }

    // Adds the products of a lane's rows and columns: of each half with 8 bits. `columns` are those of the macro-block.
    static __device__ __forceinline__ void multiply(int (&sums)[2][4], const Words& words, const int* columns) {
        if constexpr (P::BITS == 2) {
            WordQuad a = *reinterpret_cast<const WordQuad*>(columns + 4 * (lane() / 8));
#pragma unroll
            for (int r = 0; r < 2; r++) {
#pragma unroll
                for (int group = 0; group < 4; group++) {
                    unsigned codes = words.low.words[r] >> 2 * group & 0x03030303u;
                    if constexpr (P::HIGH_BITS == 1) {
                        codes |= (words.high.words[r] >> (4 * (lane() / 8 & 1) + group) & 0x01010101u) << 2;
                    }
                    sums[0][r] = dot4((int)codes, (int)a.words[group], sums[0][r]);
                }
            }
        } else if constexpr (P::BITS == 8) {
            int first = columns[lane() / 4], second = columns[8 + lane() / 4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                sums[0][r] = dot4((int)words.low.words[r], first, sums[0][r]);
                sums[1][r] = dot4((int)words.next.words[r], second, sums[1][r]);
            }
        } else {
            WordPair a = *reinterpret_cast<const WordPair*>(columns + 2 * (lane() / 4));
            int line = lane() / 4;
#pragma unroll
            for (int r = 0; r < 4; r++) {
                unsigned low, high;
                if constexpr (P::VALUES == PanelValues::Codebook) {
                    look_up_nibbles<typename P::Codebook>(words.low.words[r], low, high);
                } else {
                    low = words.low.words[r] & 0x0f0f0f0fu;
                    high = words.low.words[r] >> 4 & 0x0f0f0f0fu;
                }
                if constexpr (P::HIGH_BITS == 1) {
                    low |= (words.high.words[r] >> 2 * (line & 3) & 0x01010101u) << 4;
                    high |= (words.high.words[r] >> (2 * (line & 3) + 1) & 0x01010101u) << 4;
                }
                if constexpr (P::HIGH_BITS == 2) {
                    low |= (words.high.words[r] >> 4 * (line & 1) & 0x03030303u) << 4;
                    high |= (words.high.words[r] >> (4 * (line & 1) + 2) & 0x03030303u) << 4;
                }
                sums[0][r] = dot4((int)low, (int)a.low, dot4((int)high, (int)a.high, sums[0][r]));
            }
        }
    }

    // Adds the own value of the lanes whose index differs in the bit of `mask`: lanes without it keep `low`, the others
    // `high`.
    static __device__ __forceinline__ int exchange_add(int low, int high, int mask) {
        bool upper = lane() & mask;
        return (upper ? high : low) + shuffle_xor(upper ? low : high, mask);
    }

    // Sums up what the lanes of each result multiplied.
    static __device__ __forceinline__ void combine(int (&results)[RESULTS], const int (&sums)[2][4]) {
        auto over_lines = [&](const int(&rows)[4]) {
            return exchange_add(exchange_add(rows[0], rows[2], 4), exchange_add(rows[1], rows[3], 4), 8);
        };
        if constexpr (P::BITS == 2 && P::SUB == 16) {
            results[0] = sums[0][0];
            results[1] = sums[0][1];
        } else if constexpr (P::BITS == 2) {
            results[0] = exchange_add(sums[0][0], sums[0][1], 8);
        } else if constexpr (P::BITS == 8 && P::SUB == 16) {
            results[0] = over_lines(sums[0]);
            results[1] = over_lines(sums[1]);
        } else if constexpr (P::BITS == 8) {
            int rows[4];
#pragma unroll
            for (int r = 0; r < 4; r++) rows[r] = exchange_add(sums[0][r], sums[1][r], 16);
            results[0] = over_lines(rows);
        } else if constexpr (P::SUB == 16) {
            results[0] = exchange_add(sums[0][0], sums[0][2], 4);
            results[1] = exchange_add(sums[0][1], sums[0][3], 4);
        } else {
            results[0] = over_lines(sums[0]);
        }
    }
};

// One row. Blocks stay for several panels, so that weights are loaded without pause. The warps of a block share a panel: a
// round covers some macro-blocks for each of them. The integer sums of a round go to shared memory, from where one thread
// for each output continues its chain while the others begin the next round.
template <class P> struct OneRow {
    typedef LaneDots<P> Dots;
    static constexpr int WARPS = 8, UNITS = P::BITS == 8 || P::HIGH_BITS > 0 || P::SUBS == 4 ? 2 : 4, RESULTS = Dots::RESULTS;
    static constexpr int ROUND_MACROS = WARPS * UNITS, ROUND_SUBS = ROUND_MACROS * P::SUBS;

    // Two factors of a term of a chain.
    struct alignas(8) Term {
        float a, b;
    };

    // What a round leaves in shared memory: sums and scales, and minimums with the sums of the row.
    struct Round {
        Term products[ROUND_SUBS][PANEL_ROWS];
        Term minimums[P::HAS_MINIMUM ? ROUND_SUBS : 1][PANEL_ROWS];
    };

    // A macro-block, loaded before it is needed.
    struct Unit {
        typename Dots::Words words;
        ScaleFields fields[RESULTS];
    };

    // Adjacent macro-blocks for a warp, unless there are too few for all warps.
    static __device__ __forceinline__ int unit_macro(int first, int unit, int macros) {
        return first + (macros < ROUND_MACROS ? unit * WARPS + warp() : warp() * UNITS + unit);
    }

    static __device__ __forceinline__ void load_round(Unit (&units)[UNITS], const byte* panel, int first, int macros) {
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            // Without branches, the units are interleaved: those beyond the last macro-block repeat it.
            int macro = min(unit_macro(first, u, macros), macros - 1);
            units[u].words = Dots::load(macro_planes<P>(panel, macro));
            if constexpr (!P::IS_ROW) {
#pragma unroll
                for (int i = 0; i < RESULTS; i++) {
                    units[u].fields[i] = P::fields(block_of_macro<P>(panel, macro), macro % P::MACROS, Dots::sub(i), Dots::row(i));
                }
            }
        }
    }

    static __device__ __forceinline__ void finish_unit(Round& round, const Unit& unit, const QuantizedRows& rows, int index, int macro) {
        int sums[2][4] = {}, results[RESULTS];
        Dots::multiply(sums, unit.words, rows.words + macro * 16);
        Dots::combine(results, sums);
#pragma unroll
        for (int i = 0; i < RESULTS; i++) {
            int sub = Dots::sub(i), row = Dots::row(i);
            float row_scale = rows.scales(0)[macro * 2 + sub * P::SUB / 32];
            if constexpr (P::VALUES == PanelValues::Offset && P::OFFSET > 0) {
                const int* columns = rows.sums(0) + macro * 4;
                results[i] -= P::OFFSET * (P::SUB == 16 ? columns[sub] : columns[2 * sub] + columns[2 * sub + 1]);
            }
            SubBlockScale scale = P::scale(unit.fields[i]);
            round.products[index * P::SUBS + sub][row] = {(float)results[i], scale.scale * row_scale};
            if constexpr (P::HAS_MINIMUM) {
                float row_sum = P::SUB == 16 ? row_scale * (float)rows.sums(0)[macro * 4 + sub] : rows.scaled_sums(0)[macro * 2 + sub];
                round.minimums[index * P::SUBS + sub][row] = {scale.minimum, row_sum};
            }
        }
    }

    static __device__ __forceinline__ void run(const MatmulPart* parts, int part_count, const int* input, int, int macros) {
        if ((int)blockIdx.x >= total_panels(parts, part_count)) return;
        // The row in shared memory, which all panels of the block use.
        int* row = reinterpret_cast<int*>(dynamic_shared_memory());
        QuantizedRows rows(row, macros * MACRO_COLUMNS);
        const WordQuad* from = reinterpret_cast<const WordQuad*>(input);
        auto copy = [&] {
            for (int i = threadIdx.x; i < rows.padded / 32 * 3; i += WARPS * LANES) reinterpret_cast<WordQuad*>(row)[i] = from[i];
            sync_block();
        };
        if constexpr (P::IS_ROW) integers(parts, part_count, rows, macros, copy);
        else chains(parts, part_count, rows, macros, copy);
    }

    template <class Copy>
    static __device__ __forceinline__ void chains(const MatmulPart* parts, int part_count, const QuantizedRows& rows, int macros, Copy copy) {
        __shared__ Round rounds[2];
        int total = total_panels(parts, part_count), panel = blockIdx.x;
        const MatmulPart* part = &part_of_panel(parts, part_count, panel);
        Unit units[UNITS];
        load_round(units, panel_of_part<P>(*part, panel, macros), 0, macros);
        copy();
        float sum = 0.0f;
        for (int first = 0, buffer = 0; panel < total; buffer ^= 1) {
            Round& round = rounds[buffer];
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                int macro = unit_macro(first, u, macros);
                finish_unit(round, units[u], rows, macro - first, min(macro, macros - 1));
            }
            bool is_last = first + ROUND_MACROS >= macros;
            int next_first = is_last ? 0 : first + ROUND_MACROS, next_panel = is_last ? panel + (int)gridDim.x : panel;
            const MatmulPart* next_part = part;
            if (next_panel < total) {
                if (is_last) next_part = &part_of_panel(parts, part_count, next_panel);
                load_round(units, panel_of_part<P>(*next_part, next_panel, macros), next_first, macros);
            }
            sync_block();
            if (threadIdx.x < PANEL_ROWS) {
                int subs = min(macros - first, ROUND_MACROS) * P::SUBS;
#pragma unroll 8
                for (int sub = 0; sub < subs; sub++) {
                    Term product = round.products[sub][threadIdx.x];
                    sum = fmaf(product.a, product.b, sum);
                    if constexpr (P::HAS_MINIMUM) {
                        Term minimum = round.minimums[sub][threadIdx.x];
                        sum = fmaf(minimum.a, minimum.b, sum);
                    }
                }
                if (is_last) {
                    int output = (panel - part->first_panel) * PANEL_ROWS + threadIdx.x;
                    if (output < part->outputs) store_output(*part, 0, output, sum);
                    sum = 0.0f;
                }
            }
            first = next_first;
            panel = next_panel;
            part = next_part;
        }
    }

    // Row types: all products of an output are one integer sum.
    template <class Copy>
    static __device__ __forceinline__ void integers(const MatmulPart* parts, int part_count, const QuantizedRows& rows, int macros, Copy copy) {
        __shared__ int totals[2][WARPS][PANEL_ROWS];
        int total = total_panels(parts, part_count), quad = lane() % 4, line = lane() / 4;
        copy();
        float row_scale = rows.scales(0)[0];
        for (int panel = blockIdx.x, buffer = 0; panel < total; panel += gridDim.x, buffer ^= 1) {
            const MatmulPart& part = part_of_panel(parts, part_count, panel);
            const byte* weights = panel_of_part<P>(part, panel, macros);
            int sums[4] = {};
            for (int first = 0; first < macros; first += ROUND_MACROS) {
                Unit units[UNITS];
                load_round(units, weights, first, macros);
#pragma unroll
                for (int u = 0; u < UNITS; u++) {
                    int own = unit_macro(first, u, macros), macro = min(own, macros - 1), products[2][4] = {};
                    Dots::multiply(products, units[u].words, rows.words + macro * 16);
                    const byte* block = block_of_macro<P>(weights, macro);
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        int factor = P::SUB == 16 ? P::factor(block, 0, line / 2, 4 * quad + r) : 1;
                        if (own < macros) sums[r] += (products[0][r] + products[1][r]) * factor;
                    }
                }
            }
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int sum = sums[r];
#pragma unroll
                for (int mask = 4; mask < LANES; mask *= 2) sum += shuffle_xor(sum, mask);
                if (line == 0) totals[buffer][warp()][4 * quad + r] = sum;
            }
            sync_block();
            int output = (panel - part.first_panel) * PANEL_ROWS + threadIdx.x;
            if (threadIdx.x < PANEL_ROWS && output < part.outputs) {
                int sum = 0;
                for (int i = 0; i < WARPS; i++) sum += totals[buffer][i][threadIdx.x];
                float scale = P::row_scale(weights + panel_bytes<P>(macros) - P::ROW_SCALES, threadIdx.x);
                store_output(part, 0, output, (float)sum * (scale * row_scale));
            }
        }
    }
};

// Two to eight rows: as for one row, but a block computes one panel, and each output has a thread for its chain.
template <class P> struct FewRows {
    static constexpr int WARPS = 8, UNITS = 1, ROWS = 8;
    static constexpr int ROUND_MACROS = WARPS * UNITS, ROUND_SUBS = ROUND_MACROS * P::SUBS;

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
#pragma unroll
                for (int i = 0; i < 4; i++) dots[(2 * g + i / 2) * ROWS + 2 * t + i % 2] = (float)sums[i];
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
#pragma unroll
        for (int i = 0; i < 4; i++) totals[warp()][(2 * g + i / 2) * ROWS + 2 * t + i % 2] = sums[i];
        sync_block();
        int own_row = threadIdx.x / ROWS, own_input = threadIdx.x % ROWS, output = number * PANEL_ROWS + own_row;
        if (threadIdx.x >= PANEL_ROWS * ROWS || own_input >= row_count || output >= part.outputs) return;
        int total = 0;
        for (int i = 0; i < WARPS; i++) total += totals[i][threadIdx.x];
        float scale = P::row_scale(panel + panel_bytes<P>(macros) - P::ROW_SCALES, own_row);
        store_output(part, own_input, output, (float)total * (scale * rows.scales(own_input)[0]));
    }
};

// Many rows: a block computes 48 rows times 8 panels, a warp each. Activations of 256 columns at a time are copied to
// shared memory while the previous ones are multiplied; weights go from global memory to registers.
template <class P> struct ManyRows {
    static constexpr int WARPS = 8, TILE = 48, TILES = TILE / 8, STAGES = 3;
    // Integer sums that begin with the bits of ROUNDING_SHIFT are those of a float that much larger: below 2^22, the
    // conversion is one subtraction.
    static constexpr int FLOAT_BITS = 0x4b400000;
    // Padded so that the lanes of a warp read different banks.
    static constexpr int ROW_BYTES = 256 + 32, SCALE_BYTES = 32, SUM_BYTES = P::HAS_MINIMUM ? (P::SUB == 16 ? 64 : 32) : 0;
    static constexpr int STAGE = TILE * (ROW_BYTES + SCALE_BYTES + SUM_BYTES);

    // The scale fields or factors of rows 2 · (lane / 4) and the next, in a sub-block.
    struct RowFields {
        ScaleFields rows[P::IS_ROW ? 1 : 2];
        int factors[P::IS_ROW ? 2 : 1];
    };

    // Loads a macro-block before it is needed.
    static __device__ __forceinline__ void load_macro(PanelWords<P> (&words)[2], RowFields (&fields)[P::SUBS], const byte* panel, int macro) {
        const byte *planes = macro_planes<P>(panel, macro), *block = block_of_macro<P>(panel, macro);
        words[0] = load_panel_words<P>(planes, 0);
        words[1] = load_panel_words<P>(planes, 1);
#pragma unroll
        for (int sub = 0; sub < P::SUBS; sub++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int row = lane() / 4 * 2 + i;
                if constexpr (P::IS_ROW) fields[sub].factors[i] = P::factor(block, macro % P::MACROS, sub, row);
                else fields[sub].rows[i] = P::fields(block, macro % P::MACROS, sub, row);
            }
        }
    }

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
        // Tiles of rows come first, so that they find weights in the L2 cache.
        int first_row = blockIdx.x * TILE;
        if (first_row >= row_count) return;
        unsigned char* stages = dynamic_shared_memory();
        int last_panel = parts[part_count - 1].first_panel + (parts[part_count - 1].outputs + PANEL_ROWS - 1) / PANEL_ROWS - 1;
        int own_panel = blockIdx.y * WARPS + warp();
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
        for (int block = 0; block < STAGES - 1; block++) {
            if (block < blocks) copy_stage(stages + block * STAGE, rows, first_row, row_count, block);
            cp_async_commit();
        }
        PanelWords<P> words[2];
        RowFields fields[P::SUBS];
        load_macro(words, fields, panel, 0);
        for (int block = 0; block < blocks; block++) {
            cp_async_wait<STAGES - 2>();
            // The stage that is copied to next was read before this barrier.
            sync_block();
            int ahead = block + STAGES - 1;
            if (ahead < blocks) copy_stage(stages + ahead % STAGES * STAGE, rows, first_row, row_count, ahead);
            cp_async_commit();
            const unsigned char* stage = stages + block % STAGES * STAGE;
            int end = min(4, macros - block * 4);
            for (int m = 0; m < end; m++) {
                int macro = block * 4 + m;
                unsigned a[2][4];
                panel_operand<P>(a[0], words[0]);
                panel_operand<P>(a[1], words[1]);
                SubBlockScale scales_of[P::SUBS][2] = {};
                int factors_of[P::SUBS][2] = {};
#pragma unroll
                for (int sub = 0; sub < P::SUBS; sub++) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        if constexpr (P::IS_ROW) factors_of[sub][i] = fields[sub].factors[i];
                        else scales_of[sub][i] = P::scale(fields[sub].rows[i]);
                    }
                }
                if (macro + 1 < macros) load_macro(words, fields, panel, macro + 1);
#pragma unroll
                for (int sub = 0; sub < P::SUBS; sub++) {
                    constexpr int PER_HALF = P::SUBS / 2;
                    int half = sub / PER_HALF;
                    const SubBlockScale(&scales)[2] = scales_of[sub];
                    const int(&factors)[2] = factors_of[sub];
#pragma unroll
                    for (int n = 0; n < TILES; n++) {
                        WordPair b = *reinterpret_cast<const WordPair*>(stage + (n * 8 + g) * ROW_BYTES + 64 * m + 32 * half + 8 * t);
                        if constexpr (P::SUB == 16) b = half_of_columns(b, sub % PER_HALF);
                        if constexpr (P::IS_ROW && P::SUB == 32) {
                            mma_bytes(totals[n], a[half], b.low, b.high);
                        } else {
                            int dots[4];
                            mma_bytes_from(P::IS_ROW ? 0 : FLOAT_BITS, dots, a[half], b.low, b.high);
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
        }
        cp_async_wait<0>();
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
            float dot = __uint_as_float((unsigned)dots[i]) - ROUNDING_SHIFT;
            sums[i] = fmaf(dot, scales[i / 2].scale * row_scale[i % 2], sums[i]);
            if constexpr (P::HAS_MINIMUM) sums[i] = fmaf(scales[i / 2].minimum, row_sum[i % 2], sums[i]);
        }
    }
};

// The bodies of kernels for one row, for up to eight, and for more.
#define MATMUL_ONE(P) OneRow<P>::run(MATMUL_ARGUMENTS)
#define MATMUL_FEW(P) FewRows<P>::run(MATMUL_ARGUMENTS)
#define MATMUL_MANY(P) ManyRows<P>::run(MATMUL_ARGUMENTS)
