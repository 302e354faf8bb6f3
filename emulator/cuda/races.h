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

// The shadow memory of a resident block.
struct Watch;

#ifdef RACE_DETECTOR
Watch* new_watch();
// A block begins, with these areas.
void begin_watch(Watch* watch, const Area (&areas)[2]);
// Watches the accesses of a block, until another one is watched.
void resume_watch(Watch* watch);
// Watches nothing.
void end_watch();
void copy_starts(const void* to);
void copy_finishes(const void* to);
// A thread returns.
void thread_ends();
#else
inline Watch* new_watch() { return nullptr; }
inline void begin_watch(Watch*, const Area (&)[2]) {}
inline void resume_watch(Watch*) {}
inline void end_watch() {}
inline void copy_starts(const void*) {}
inline void copy_finishes(const void*) {}
inline void thread_ends() {}
#endif
