// A CUDA emulator for tests: implements the machine interface of runtime/cuda/kernels/machine.cuh as an ordinary program. Every
// thread of a block is a fiber; a chosen number of blocks is resident at the same time. Undefined behavior that a real
// GPU may tolerate is an error here: divergent lanes, copies that were not waited for, uninitialized memory, and, if
// the kernels are compiled with the hooks of races.h, races and misaligned accesses.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define __device__
#define __global__
// The only thread-local variables of this program, and therefore adjacent.
#define __shared__ static thread_local
#define __constant__ static const
#define __forceinline__ inline
#define __restrict__

struct Dim3 {
    unsigned x, y, z;
};

inline Dim3 threadIdx, blockIdx, blockDim, gridDim;

// Threads that share a barrier.
struct Group {
    int alive = 0;
    int arrived = 0;
    unsigned generation = 0;
    const char* barrier = nullptr;
};

// Words that a lane can publish to the others at once.
const int WORDS = 6;

struct Warp : Group {
    // Counts sync_warp().
    unsigned epoch = 0;
    uint64_t words[2][32][WORDS];
};

struct Copy {
    void* to;
    const void* from;
    bool valid;
    bool landed = false;
};

struct Thread {
    int number;
    // Groups of pending copies, the oldest first. The last is open.
    std::vector<std::vector<Copy>> copies;
};

// Defined in host.cpp.
extern Thread* current;
extern Warp* warps_of_block;
extern Group* block_group;
extern unsigned char* shared_memory;
extern size_t shared_size;
// Counts what threads do that others may wait for.
extern uint64_t progress;
bool is_shared(const void* from, size_t bytes);
void yield();
// An asynchronous copy lands at some moment from its start to its finish.
void start_copy(Copy copy);
void finish_copy(Copy& copy);
[[noreturn]] void fail(const char* what);

inline void wait_in(Group& group, const char* barrier) {
    if (group.arrived > 0 && group.barrier != barrier && strcmp(group.barrier, barrier) != 0) {
        fail("divergence: threads wait at different barriers");
    }
    group.barrier = barrier;
    group.arrived++;
    progress++;
    if (group.arrived == group.alive) {
        group.arrived = 0;
        group.generation++;
        return;
    }
    unsigned mine = group.generation;
    while (group.generation == mine) yield();
}

inline int lane() { return current->number & 31; }
inline Warp& own_warp() { return warps_of_block[current->number / 32]; }
inline void sync_block() { wait_in(*block_group, "block"); }
inline void sync_warp() {
    Warp& warp = own_warp();
    if (warp.arrived + 1 == warp.alive) warp.epoch++;
    wait_in(warp, "warp");
}

// Publishes words to the other lanes of the warp and returns the words of all lanes.
template <class... X> inline uint64_t (*exchange(const char* what, X... words))[WORDS] {
    Warp& warp = own_warp();
    uint64_t(*words_of_lanes)[WORDS] = warp.words[warp.generation & 1];
    uint64_t all[] = {(uint64_t)words...};
    if (warp.alive != 32) fail("a lane of a warp-wide operation has returned");
    for (size_t i = 0; i < sizeof...(words); i++) words_of_lanes[lane()][i] = all[i];
    wait_in(warp, what);
    return words_of_lanes;
}

template <class X> inline uint64_t as_word(X x) {
    uint64_t word = 0;
    memcpy(&word, &x, sizeof x);
    return word;
}

template <class X> inline X of_word(uint64_t word) {
    X x;
    memcpy(&x, &word, sizeof x);
    return x;
}

template <class X> inline X shuffle(X x, int from) { return of_word<X>(exchange("shuffle", as_word(x))[from & 31][0]); }
template <class X> inline X shuffle_xor(X x, int mask) {
    return of_word<X>(exchange("shuffle_xor", as_word(x))[(lane() ^ mask) & 31][0]);
}

struct bf16 {
    unsigned short bits;
};

struct f16 {
    unsigned short bits;
};

inline float to_f32(float x) { return x; }
inline float to_f32(bf16 x) { return of_word<float>((uint64_t)x.bits << 16); }

inline float f32_of_f16(unsigned bits) {
    int exponent = bits >> 10 & 31;
    float digits = (float)(bits & 1023);
    float size = exponent == 0    ? std::ldexp(digits, -24)
                 : exponent == 31 ? (digits == 0 ? INFINITY : NAN)
                                  : std::ldexp(1024 + digits, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

// Every f16 as a float.
struct F16Table {
    float all[1 << 16];
    F16Table() {
        for (unsigned bits = 0; bits < 1 << 16; bits++) all[bits] = f32_of_f16(bits);
    }
};

inline const F16Table f16_table;
inline float to_f32(f16 x) { return f16_table.all[x.bits]; }

inline void from_f32(float& to, float x) { to = x; }

inline void from_f32(bf16& to, float x) {
    uint32_t bits = (uint32_t)as_word(x);
    if (std::isnan(x)) {
        to.bits = 0x7fff;
        return;
    }
    to.bits = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void from_f32(f16& to, float x) {
    unsigned sign = std::signbit(x) ? 0x8000 : 0;
    float size = std::fabs(x);
    if (std::isnan(x)) {
        to.bits = 0x7fff;
    } else if (size >= 65520) {
        to.bits = (unsigned short)(sign | 0x7c00);
    } else if (size < std::ldexp(1.0f, -14)) {
        to.bits = (unsigned short)(sign | (unsigned)std::nearbyint(std::ldexp(size, 24)));
    } else {
        int exponent;
        std::frexp(size, &exponent);
        unsigned digits = (unsigned)std::nearbyint(std::ldexp(size, 11 - exponent));
        to.bits = (unsigned short)(sign | (((unsigned)(exponent + 14) << 10) + digits - 1024));
    }
}

template <class T> inline unsigned pack_pair(T, float low, float high) {
    T both[2];
    from_f32(both[0], low);
    from_f32(both[1], high);
    return both[0].bits | (unsigned)both[1].bits << 16;
}

inline float sqrt_approx(float x) { return std::sqrt(x); }
inline float divide_approx(float x, float y) { return x / y; }
inline float exp2_approx(float x) { return std::exp2(x); }
inline unsigned char* dynamic_shared_memory() { return shared_memory; }

// Rows of four matrices, of all lanes.
inline uint64_t (*matrix_rows(const char* what, const void* row))[WORDS] {
    if ((uint64_t)row % 16 != 0) fail("a matrix row is not aligned to 16 bytes");
    if (!is_shared(row, 16)) fail("a matrix row is not in shared memory");
    return exchange(what, row);
}

inline unsigned short matrix_number(uint64_t (*rows)[WORDS], int matrix, int row, int column) {
    return ((const unsigned short*)rows[8 * matrix + row][0])[column];
}

inline void ldmatrix(unsigned (&to)[4], const void* row) {
    uint64_t(*rows)[WORDS] = matrix_rows("ldmatrix", row);
    int own_row = lane() / 4, column = lane() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        to[i] = matrix_number(rows, i, own_row, column) | (unsigned)matrix_number(rows, i, own_row, column + 1) << 16;
    }
}

inline void ldmatrix_transposed(unsigned (&to)[4], const void* row) {
    uint64_t(*rows)[WORDS] = matrix_rows("ldmatrix_transposed", row);
    int own_row = lane() / 4, column = lane() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        to[i] = matrix_number(rows, i, column, own_row) | (unsigned)matrix_number(rows, i, column + 1, own_row) << 16;
    }
}

// Both numbers of a word, as floats.
template <class T> inline uint64_t floats_of(T, unsigned word) {
    T low, high;
    low.bits = (unsigned short)word;
    high.bits = (unsigned short)(word >> 16);
    return as_word(to_f32(low)) | as_word(to_f32(high)) << 32;
}

template <class T>
inline void mma(T type, float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    // Of a, words 0 and 1 hold the first 8 columns: word 0 the rows below 8, word 1 the others. Words 2 and 3 hold the
    // remaining columns.
    uint64_t(*lanes)[WORDS] = exchange("mma", floats_of(type, a[0]), floats_of(type, a[1]), floats_of(type, a[2]),
                                       floats_of(type, a[3]), floats_of(type, b0), floats_of(type, b1));
    int own_row = lane() / 4, column = lane() % 4 * 2;
    // The own rows of a, 8 apart, and the own columns of b.
    float rows[2][16], columns[2][16];
    for (int k = 0; k < 16; k += 2) {
        for (int i = 0; i < 2; i++) {
            memcpy(&rows[i][k], &lanes[own_row * 4 + k % 8 / 2][k / 8 * 2 + i], 8);
            memcpy(&columns[i][k], &lanes[(column + i) * 4 + k % 8 / 2][4 + k / 8], 8);
        }
    }
    for (int i = 0; i < 4; i++) {
        double sum = sums[i];
        for (int k = 0; k < 16; k++) sum += (double)rows[i / 2][k] * (double)columns[i % 2][k];
        sums[i] = (float)sum;
    }
}

inline int dot4(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> 8 * i) * (int)(signed char)(b >> 8 * i);
    return c;
}

inline unsigned permute_bytes(unsigned a, unsigned b, unsigned selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) result |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

inline void mma_bytes(int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    auto word = [](unsigned low, unsigned high) { return (uint64_t)high << 32 | low; };
    uint64_t(*lanes)[WORDS] = exchange("mma_bytes", word(a[0], a[1]), word(a[2], a[3]), word(b0, b1));
    int own_row = lane() / 4, column = lane() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        int sum = sums[i];
        for (int k = 0; k < 8; k++) {
            unsigned left = (unsigned)(lanes[own_row * 4 + k % 4][k / 4] >> 32 * (i / 2));
            unsigned right = (unsigned)(lanes[(column + i % 2) * 4 + k % 4][2] >> 32 * (k / 4));
            sum = dot4((int)left, (int)right, sum);
        }
        sums[i] = sum;
    }
}

inline void mma_bytes_from(int start, int (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    for (int& sum : sums) sum = start;
    mma_bytes(sums, a, b0, b1);
}

struct alignas(8) WordPair {
    unsigned low, high;
};

inline WordPair load_streamed(const void* from) {
    if ((uint64_t)from % 8 != 0) fail("a pair of words is not aligned to 8 bytes");
    return *(const WordPair*)from;
}

struct alignas(16) WordQuad {
    unsigned words[4];
};

inline WordQuad load_streamed_quad(const void* from) {
    if ((uint64_t)from % 16 != 0) fail("four words are not aligned to 16 bytes");
    return *(const WordQuad*)from;
}

inline void cp_async(void* to, const void* from, bool valid) {
    if ((uint64_t)to % 16 != 0 || (valid && (uint64_t)from % 16 != 0)) fail("a 16-byte copy is not aligned to 16 bytes");
    if (!is_shared(to, 16)) fail("an asynchronous copy is not to shared memory");
    start_copy({to, from, valid});
}

inline void cp_async_commit() { current->copies.emplace_back(); }

// The last group is still open.
template <int LEFT> inline void cp_async_wait() {
    auto& groups = current->copies;
    while (groups.size() > LEFT + 1) {
        for (Copy& copy : groups.front()) finish_copy(copy);
        groups.erase(groups.begin());
    }
}

// Lets other threads run first, so that a thread may poll a counter.
unsigned atomic_add(unsigned* counter, unsigned x);
inline void fence() {}

inline unsigned __float_as_uint(float x) { return (unsigned)as_word(x); }
inline float __uint_as_float(unsigned x) { return of_word<float>(x); }
using std::isfinite;
template <class X> inline X min(X a, X b) { return b < a ? b : a; }
template <class X> inline X max(X a, X b) { return a < b ? b : a; }

// A kernel, as registered with the host.
struct Entry {
    const char* name;
    int threads;
    void (*call)(const uint64_t* arguments);
    int count;
    Entry* next;
    static inline Entry* first = nullptr;
    Entry(const char* name, int threads, void (*call)(const uint64_t*), int count)
        : name(name), threads(threads), call(call), count(count), next(first) {
        first = this;
    }
};

template <auto KERNEL> struct Called;
template <class... X, void (*KERNEL)(X...)> struct Called<KERNEL> {
    static constexpr int count = sizeof...(X);
    template <size_t... I> static void with(const uint64_t* arguments, std::index_sequence<I...>) {
        KERNEL(of_word<X>(arguments[I])...);
    }
    static void call(const uint64_t* arguments) { with(arguments, std::index_sequence_for<X...>()); }
};

#define ENTRY(name, THREADS, parameters, body) \
    static void name parameters { body; } \
    static Entry entry_##name(#name, THREADS, Called<name>::call, Called<name>::count);

#define ENTRY_WITH_BLOCKS(name, THREADS, BLOCKS, parameters, body) ENTRY(name, THREADS, parameters, body)
