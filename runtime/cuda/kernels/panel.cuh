// Packed weights: panels of 16 rows, as docs/format.md and kernels/src/panel/ describe them. A panel type here says how
// the bits of a macro-block (64 columns) become signed bytes, and how its scale fields become a scale and a minimum.
#pragma once

#include "exact.cuh"

#define PANEL_ROWS 16
#define PANEL_LINE 64
// Columns of a macro-block.
#define MACRO_COLUMNS 64

typedef unsigned char byte;

__device__ __forceinline__ float half_of_bits(unsigned bits) {
    f16 x;
    x.bits = (unsigned short)bits;
    return to_f32(x);
}

__device__ __forceinline__ unsigned halfword_at(const byte* place) {
    return *reinterpret_cast<const unsigned short*>(place);
}

// The scale fields of a sub-block of one row, as loaded.
struct ScaleFields {
    unsigned block, factors;
};

struct SubBlockScale {
    float scale, minimum;
};

// How codes become integers.
enum class PanelValues { Signed, Offset, Codebook };

// The codebooks of kernels/src/quant/codebooks.rs, four bytes to a word.
struct CodebookIq4 {
    static constexpr unsigned WORDS[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
};
struct CodebookFp4 {
    static constexpr unsigned WORDS[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
};
struct CodebookW4i {
    static constexpr unsigned WORDS[4] = {0xfbfaf8f6u, 0xfffefdfcu, 0x03020100u, 0x09070504u};
};

// What all panel types share: BITS per code in the first plane, HIGH_BITS in the second, shifted left by BITS; SUB
// columns to a scale, COLUMNS to a block, with HEAD and TAIL bytes of scale fields before the first macro-block and after
// the planes of each.
template <int COLUMNS_, int BITS_, int HIGH_BITS_, int SUB_, int HEAD_, int TAIL_> struct PanelLayout {
    static constexpr int COLUMNS = COLUMNS_, BITS = BITS_, HIGH_BITS = HIGH_BITS_, SUB = SUB_, HEAD = HEAD_, TAIL = TAIL_;
    static constexpr int LOW_PLANE = BITS * 128, PLANES = LOW_PLANE + HIGH_BITS * 128, MACRO = PLANES + TAIL;
    static constexpr int MACROS = COLUMNS / MACRO_COLUMNS, BLOCK = HEAD + MACROS * MACRO;
    static constexpr int SUBS = MACRO_COLUMNS / SUB;
    static constexpr PanelValues VALUES = PanelValues::Offset;
    static constexpr int OFFSET = 0;
    // Whether sub-blocks have a minimum; whether there is one scale per row, with integer factors per sub-block.
    static constexpr bool HAS_MINIMUM = false, IS_ROW = false;
    typedef CodebookIq4 Codebook;
    // The bytes of row scales at the end of a panel.
    static constexpr int ROW_SCALES = 0;
};

// f16 scales of the two sub-blocks after the planes of a macro-block.
template <int BITS, int HIGH_BITS, int TAIL> struct HalfScales : PanelLayout<64, BITS, HIGH_BITS, 32, 0, TAIL> {
    typedef PanelLayout<64, BITS, HIGH_BITS, 32, 0, TAIL> Layout;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int macro, int sub, int row) {
        const byte* tail = block + macro * Layout::MACRO + Layout::PLANES;
        return {halfword_at(tail + 32 * sub + 2 * row), TAIL > 64 ? halfword_at(tail + 64 + 32 * sub + 2 * row) : 0};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) {
        return {half_of_bits(fields.block), TAIL > 64 ? half_of_bits(fields.factors) : 0.0f};
    }
};

// f16 scale and minimum of a block of 256 columns, and a byte each per sub-block of 32.
template <int HIGH_BITS> struct FactorMinScales : PanelLayout<256, 4, HIGH_BITS, 32, 64, 64> {
    typedef PanelLayout<256, 4, HIGH_BITS, 32, 64, 64> Layout;
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int macro, int sub, int row) {
        const byte* tail = block + Layout::HEAD + macro * Layout::MACRO + Layout::PLANES + 16 * sub + row;
        return {halfword_at(block + 2 * row) | halfword_at(block + 32 + 2 * row) << 16, tail[0] | (unsigned)tail[32] << 8};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) {
        float minimum = half_of_bits(fields.block >> 16) * (float)(fields.factors >> 8);
        return {half_of_bits(fields.block & 0xffff) * (float)(fields.factors & 255), -minimum};
    }
};

// f16 scale of a block of 256 columns, and a signed byte per sub-block of 16.
template <int BITS, int HIGH_BITS> struct FactorScales : PanelLayout<256, BITS, HIGH_BITS, 16, 64, 64> {
    typedef PanelLayout<256, BITS, HIGH_BITS, 16, 64, 64> Layout;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int macro, int sub, int row) {
        const byte* tail = block + Layout::HEAD + macro * Layout::MACRO + Layout::PLANES;
        return {halfword_at(block + 2 * row), tail[16 * sub + row]};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) {
        return {half_of_bits(fields.block) * (float)(signed char)fields.factors, 0.0f};
    }
};

struct Q8 : HalfScales<8, 0, 64> {
    static constexpr PanelValues VALUES = PanelValues::Signed;
};
struct Q8S16 : PanelLayout<64, 8, 0, 16, 0, 256> {
    static constexpr PanelValues VALUES = PanelValues::Signed;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int macro, int sub, int row) {
        return {*reinterpret_cast<const unsigned*>(block + macro * MACRO + PLANES + 64 * sub + 4 * row), 0};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) { return {__uint_as_float(fields.block), 0.0f}; }
};
struct Q4 : HalfScales<4, 0, 64> {
    static constexpr int OFFSET = 8;
};
struct Q4M : HalfScales<4, 0, 128> {
    static constexpr bool HAS_MINIMUM = true;
};
struct Q4NL : HalfScales<4, 0, 64> {
    static constexpr PanelValues VALUES = PanelValues::Codebook;
};
struct MXFP4 : HalfScales<4, 0, 64> {
    static constexpr PanelValues VALUES = PanelValues::Codebook;
    typedef CodebookFp4 Codebook;
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) {
        return {__uint_as_float(fields.block << 16), 0.0f};
    }
};
struct Q5 : HalfScales<4, 1, 64> {
    static constexpr int OFFSET = 16;
};
struct Q5M : HalfScales<4, 1, 128> {
    static constexpr bool HAS_MINIMUM = true;
};
struct Q4K : FactorMinScales<0> {};
struct Q5K : FactorMinScales<1> {};
struct Q6K : FactorScales<4, 2> {
    static constexpr int OFFSET = 32;
};
struct Q3K : FactorScales<2, 1> {
    static constexpr int OFFSET = 4;
};
struct Q2K : PanelLayout<256, 2, 0, 16, 64, 64> {
    static constexpr bool HAS_MINIMUM = true;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int macro, int sub, int row) {
        const byte* tail = block + HEAD + macro * MACRO + PLANES;
        return {halfword_at(block + 2 * row) | halfword_at(block + 32 + 2 * row) << 16, tail[16 * sub + row]};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) {
        float minimum = half_of_bits(fields.block >> 16) * (float)(fields.factors >> 4);
        return {half_of_bits(fields.block & 0xffff) * (float)(fields.factors & 15), -minimum};
    }
};
struct IQ4XS : PanelLayout<256, 4, 0, 32, 192, 0> {
    static constexpr PanelValues VALUES = PanelValues::Codebook;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int macro, int sub, int row) {
        return {halfword_at(block + 2 * row), block[64 + 16 * (2 * macro + sub) + row]};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) {
        return {half_of_bits(fields.block) * (float)(signed char)fields.factors, 0.0f};
    }
};
struct TERNARY : PanelLayout<256, 2, 0, 32, 64, 0> {
    static constexpr int OFFSET = 1;
    static __device__ __forceinline__ ScaleFields fields(const byte* block, int, int, int row) {
        return {halfword_at(block + 2 * row), 0};
    }
    static __device__ __forceinline__ SubBlockScale scale(ScaleFields fields) { return {half_of_bits(fields.block), 0.0f}; }
};
struct W8R : PanelLayout<64, 8, 0, 32, 0, 0> {
    static constexpr PanelValues VALUES = PanelValues::Signed;
    static constexpr bool IS_ROW = true;
    static constexpr int ROW_SCALES = 64;
    static __device__ __forceinline__ int factor(const byte*, int, int, int) { return 1; }
    static __device__ __forceinline__ float row_scale(const byte* end, int row) {
        return reinterpret_cast<const float*>(end)[row];
    }
};
struct W4I : PanelLayout<64, 4, 0, 16, 0, 32> {
    static constexpr PanelValues VALUES = PanelValues::Codebook;
    static constexpr bool IS_ROW = true;
    static constexpr int ROW_SCALES = 32;
    typedef CodebookW4i Codebook;
    static __device__ __forceinline__ int factor(const byte* block, int macro, int sub, int row) {
        unsigned code = block[macro * MACRO + PLANES + 2 * row + sub / 2] >> (4 * (sub & 1)) & 15;
        int size = 5 + (int)(code & 7);
        return code & 8 ? -size : size;
    }
    static __device__ __forceinline__ float row_scale(const byte* end, int row) {
        return __uint_as_float(halfword_at(end + 2 * row) << 16);
    }
};

// Half of a macro-block (32 columns) as a lane of a warp loads it for mma_bytes: the words of rows 2 · (lane / 4) and the
// next, with columns 8 · (lane % 4) and the seven after it.
template <class P> struct PanelWords {
    WordPair low, next, high;
};

template <class P> __device__ __forceinline__ PanelWords<P> load_panel_words(const byte* planes, int half) {
    int g = lane() / 4, t = lane() % 4;
    PanelWords<P> words = {};
    const byte* own = planes + 8 * g;
    if constexpr (P::BITS == 8) {
        words.low = load_streamed(own + PANEL_LINE * (8 * half + 2 * t));
        words.next = load_streamed(own + PANEL_LINE * (8 * half + 2 * t + 1));
    } else if constexpr (P::BITS == 4) {
        words.low = load_streamed(own + PANEL_LINE * (4 * half + t));
    } else {
        words.low = load_streamed(own + PANEL_LINE * (2 * half + t / 2));
    }
    if constexpr (P::HIGH_BITS == 2) words.high = load_streamed(own + P::LOW_PLANE + PANEL_LINE * (2 * half + t / 2));
    if constexpr (P::HIGH_BITS == 1) words.high = load_streamed(own + P::LOW_PLANE + PANEL_LINE * half);
    return words;
}

// Looks up the eight nibbles of a word: the low nibbles of its bytes in order, then the high ones.
template <class Codebook> __device__ __forceinline__ void look_up_nibbles(unsigned word, unsigned& low, unsigned& high) {
    unsigned index = word & 0x77777777u, select = ((word & 0x88888888u) >> 1) | 0x32103210u;
    constexpr unsigned B0 = Codebook::WORDS[0], B1 = Codebook::WORDS[1], B2 = Codebook::WORDS[2], B3 = Codebook::WORDS[3];
    unsigned x = permute_bytes(permute_bytes(B0, B1, index), permute_bytes(B2, B3, index), select);
    unsigned y = permute_bytes(permute_bytes(B0, B1, index >> 16), permute_bytes(B2, B3, index >> 16), select >> 16);
    low = permute_bytes(x, y, 0x6420);
    high = permute_bytes(x, y, 0x7531);
}

// Turns four codes into signed bytes.
template <class P> __device__ __forceinline__ unsigned signed_bytes(unsigned codes) {
    if constexpr (P::VALUES == PanelValues::Offset && P::OFFSET > 0) {
        return ((codes | 0x80808080u) - P::OFFSET * 0x01010101u) ^ 0x80808080u;
    }
    return codes;
}

// The operand a of mma_bytes: rows lane / 4 and lane / 4 + 8 of the operand are rows 2 · (lane / 4) and the next of the
// panel. The columns are those of bytes 8 · (lane % 4) and following of a row of b.
template <class P> __device__ __forceinline__ void panel_operand(unsigned (&a)[4], const PanelWords<P>& words) {
    int t = lane() % 4;
    if constexpr (P::VALUES == PanelValues::Codebook) {
        look_up_nibbles<typename P::Codebook>(words.low.low, a[0], a[2]);
        look_up_nibbles<typename P::Codebook>(words.low.high, a[1], a[3]);
        return;
    }
    if constexpr (P::BITS == 8) {
        a[0] = words.low.low;
        a[1] = words.low.high;
        a[2] = words.next.low;
        a[3] = words.next.high;
    } else {
        constexpr unsigned MASK = P::BITS == 4 ? 0x0f0f0f0fu : 0x03030303u;
        int shift = P::BITS == 4 ? 0 : 4 * (t & 1);
        a[0] = words.low.low >> shift & MASK;
        a[1] = words.low.high >> shift & MASK;
        a[2] = words.low.low >> (shift + P::BITS) & MASK;
        a[3] = words.low.high >> (shift + P::BITS) & MASK;
    }
    if constexpr (P::HIGH_BITS > 0) {
        constexpr unsigned MASK = P::HIGH_BITS == 2 ? 0x03030303u : 0x01010101u;
        int shift = P::HIGH_BITS == 2 ? 4 * (t & 1) : 2 * t;
        a[0] |= (words.high.low >> shift & MASK) << P::BITS;
        a[1] |= (words.high.high >> shift & MASK) << P::BITS;
        a[2] |= (words.high.low >> (shift + P::HIGH_BITS) & MASK) << P::BITS;
        a[3] |= (words.high.high >> (shift + P::HIGH_BITS) & MASK) << P::BITS;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = signed_bytes<P>(a[i]);
}

// Returns the integer of one weight, before its scale; `column` lies in the macro-block.
template <class P> __device__ __forceinline__ int panel_integer(const byte* planes, int row, int column) {
    auto bits = [&](const byte* plane, int count) {
        int group = column / 4, per_line = 8 / count;
        unsigned code = plane[PANEL_LINE * (group / per_line) + 4 * row + column % 4];
        return code >> (count * (group % per_line)) & ((1u << count) - 1);
    };
    unsigned code = bits(planes, P::BITS);
    if constexpr (P::HIGH_BITS > 0) code |= bits(planes + P::LOW_PLANE, P::HIGH_BITS) << P::BITS;
    if constexpr (P::VALUES == PanelValues::Codebook) {
        constexpr unsigned B0 = P::Codebook::WORDS[0], B1 = P::Codebook::WORDS[1], B2 = P::Codebook::WORDS[2],
                           B3 = P::Codebook::WORDS[3];
        unsigned word = code < 4 ? B0 : code < 8 ? B1 : code < 12 ? B2 : B3;
        return (int)(signed char)(word >> (8 * (code % 4)));
    }
    if constexpr (P::VALUES == PanelValues::Signed) return (int)(signed char)code;
    return (int)code - P::OFFSET;
}
