// The race detector of shared memory. It needs kernels that were compiled with `-fsanitize=thread`, whose hooks it
// implements, and is empty without RACE_DETECTOR.
//
// Two accesses of a byte by different threads, at least one of them a write, must be ordered by a block barrier or,
// within a warp, by sync_warp(). Other operations of a warp order no memory accesses. From its start until its thread
// has waited for it, an asynchronous copy writes its bytes, which no thread may access meanwhile.
#pragma once

#include "machine.h"

// An area of shared memory.
struct Area {
    const char* name;
    unsigned char* first;
    size_t size;
};

#ifdef RACE_DETECTOR
// Watches the accesses to the areas of a block, which begins.
void watch(const Area (&areas)[2]);
// The block ends.
void end_watch();
void copy_starts(const void* to);
void copy_finishes(const void* to);
// A thread returns.
void thread_ends();
#else
inline void watch(const Area (&)[2]) {}
inline void end_watch() {}
inline void copy_starts(const void*) {}
inline void copy_finishes(const void*) {}
inline void thread_ends() {}
#endif
