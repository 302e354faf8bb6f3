// The race detector, see races.h.
#include "races.h"

#ifdef RACE_DETECTOR

// Accesses of one byte, or of a word whose bytes were only accessed together. Threads are counted from 1; 0 is none.
// Only accesses since the last block barrier can race; those of one warp are also ordered by its epochs. The numbers of
// barriers are unique, so that blocks need not clear what others left.
struct Shadow {
    uint32_t write_barrier, write_epoch;
    uint32_t read_barrier, read_epoch;
    uint32_t copy_block;
    uint16_t writer;
    // The last reader, another one of the same warp and epoch, and one of another warp.
    uint16_t reader, other_reader, distant_reader;
    // The thread whose asynchronous copy is pending.
    uint16_t copier;
};

static const size_t WORD = 4;

struct Word {
    Shadow whole;
    // The block that accessed parts of the word, whose bytes have their own shadows since.
    uint32_t split_block;
    Shadow bytes[WORD];
};

struct Watched {
    Area area;
    std::vector<Word> words;
};

struct Watch {
    Watched areas[2];
    // The numbers of the block's first barrier, and of the last one before an access.
    uint32_t first_barrier = 0, last_barrier = 0;
};

static Watch nothing;
static Watch* watched = &nothing;

enum class Access { READ, WRITE };

static const char* verb(Access access) { return access == Access::READ ? "reads" : "writes"; }

[[noreturn]] static void report(const Watched& in, size_t offset, Access access, int other, const char* what) {
    char text[200];
    snprintf(text, sizeof text, "race: thread %d %s byte %zu of %s shared memory, which thread %d %s", current->number,
             verb(access), offset, in.area.name, other - 1, what);
    fail(text);
}

static void check(const Watched& in, size_t offset, Shadow& shadow, Access access) {
    uint16_t own = (uint16_t)(current->number + 1);
    uint32_t barrier = watched->first_barrier + block_group->generation, epoch = own_warp().epoch;
    watched->last_barrier = barrier;
    auto is_own_warp = [&](uint16_t thread) { return (thread - 1) / 32 == current->number / 32; };
    auto is_unordered = [&](uint16_t thread, uint32_t since) {
        return thread != 0 && thread != own && (!is_own_warp(thread) || since == epoch);
    };
    if (shadow.copier != 0 && shadow.copy_block == watched->first_barrier) {
        report(in, offset, access, shadow.copier, "copies without having waited for it");
    }
    if (shadow.write_barrier == barrier && is_unordered(shadow.writer, shadow.write_epoch)) {
        report(in, offset, access, shadow.writer, "wrote since the last barrier");
    }
    bool was_read = shadow.read_barrier == barrier;
    if (access == Access::WRITE) {
        for (uint16_t reader : {shadow.reader, shadow.other_reader, shadow.distant_reader}) {
            if (was_read && is_unordered(reader, shadow.read_epoch)) {
                report(in, offset, access, reader, "read since the last barrier");
            }
        }
        shadow.writer = own;
        shadow.write_barrier = barrier;
        shadow.write_epoch = epoch;
    } else if (was_read && !is_own_warp(shadow.reader)) {
        shadow.distant_reader = own;
    } else if (was_read && shadow.read_epoch == epoch) {
        if (shadow.reader != own) shadow.other_reader = own;
    } else {
        shadow.reader = own;
        shadow.other_reader = 0;
        if (!was_read) shadow.distant_reader = 0;
        shadow.read_barrier = barrier;
        shadow.read_epoch = epoch;
    }
}

// Calls work(area, offset, shadow) for all bytes in an area, or for words of them.
template <class Work> static inline void for_each_shadow(const void* first, size_t bytes, Work work) {
    for (Watched& in : watched->areas) {
        size_t offset = (size_t)first - (size_t)in.area.first;
        if (offset >= in.area.size) continue;
        size_t end = offset + bytes < in.area.size ? offset + bytes : in.area.size;
        while (offset < end) {
            Word& word = in.words[offset / WORD];
            bool is_whole = offset % WORD == 0 && end - offset >= WORD, is_split = word.split_block == watched->first_barrier;
            if (is_whole && !is_split) {
                work(in, offset, word.whole);
                offset += WORD;
                continue;
            }
            if (!is_split) {
                word.split_block = watched->first_barrier;
                for (Shadow& byte : word.bytes) byte = word.whole;
            }
            work(in, offset, word.bytes[offset % WORD]);
            offset++;
        }
    }
}

static inline void access(const void* first, size_t bytes, Access access) {
    for_each_shadow(first, bytes, [&](Watched& in, size_t offset, Shadow& shadow) { check(in, offset, shadow, access); });
}

Watch* new_watch() { return new Watch; }

void begin_watch(Watch* watch, const Area (&areas)[2]) {
    watch->first_barrier = ++watch->last_barrier;
    for (int i = 0; i < 2; i++) {
        Watched& in = watch->areas[i];
        in.area = areas[i];
        size_t words = (in.area.size + WORD - 1) / WORD;
        if (in.words.size() < words) in.words.resize(words);
    }
}

void resume_watch(Watch* watch) { watched = watch; }

void end_watch() { watched = &nothing; }

void copy_starts(const void* to) {
    access(to, 16, Access::WRITE);
    for_each_shadow(to, 16, [](Watched&, size_t, Shadow& shadow) {
        shadow.copier = (uint16_t)(current->number + 1);
        shadow.copy_block = watched->first_barrier;
    });
}

void copy_finishes(const void* to) {
    for_each_shadow(to, 16, [](Watched&, size_t, Shadow& shadow) { shadow.copier = 0; });
    access(to, 16, Access::WRITE);
}

void thread_ends() {
    for (const auto& group : current->copies) {
        if (!group.empty()) fail("a thread returns while its asynchronous copies are pending");
    }
}

// The hooks of -fsanitize=thread and -fsanitize=alignment, under the names that GCC and Clang call.

#define HOOKS(SIZE)                                                                                    \
    void __tsan_read##SIZE(void* from) { access(from, SIZE, Access::READ); }                          \
    void __tsan_write##SIZE(void* to) { access(to, SIZE, Access::WRITE); }                            \
    void __tsan_unaligned_read##SIZE(void* from) { access(from, SIZE, Access::READ); }                \
    void __tsan_unaligned_write##SIZE(void* to) { access(to, SIZE, Access::WRITE); }

struct SourceLocation {
    const char* file;
    uint32_t line, column;
};

struct TypeMismatch {
    SourceLocation location;
    const void* type;
    unsigned char log2_alignment, kind;
};

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_read_range(void* from, size_t bytes) { access(from, bytes, Access::READ); }
void __tsan_write_range(void* to, size_t bytes) { access(to, bytes, Access::WRITE); }

void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
    access(from, bytes, Access::READ);
    access(to, bytes, Access::WRITE);
    return memcpy(to, from, bytes);
}

void* __tsan_memmove(void* to, const void* from, size_t bytes) {
    access(from, bytes, Access::READ);
    access(to, bytes, Access::WRITE);
    return memmove(to, from, bytes);
}

void* __tsan_memset(void* to, int byte, size_t bytes) {
    access(to, bytes, Access::WRITE);
    return memset(to, byte, bytes);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __ubsan_handle_type_mismatch_v1(TypeMismatch* mismatch, size_t address) {
    size_t alignment = (size_t)1 << mismatch->log2_alignment;
    if (address % alignment == 0) return;
    char text[300];
    const SourceLocation& at = mismatch->location;
    snprintf(text, sizeof text, "an address is not aligned to %zu bytes in %s:%u", alignment, at.file, at.line);
    fail(text);
}
}

#endif
