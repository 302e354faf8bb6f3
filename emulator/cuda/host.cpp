// Serves requests on standard input and output: memory operations, and kernel launches on that memory. A request is a
// letter and 8-byte integers; src/cuda.rs is the client.
#include "machine.h"
#include "races.h"

#include <csignal>
#include <link.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

Thread* current;
Warp* warps_of_block;
Group* block_group;
unsigned char* shared_memory;
size_t shared_size;
uint64_t progress;

// The `__shared__` variables of all kernels. A kernel uses few of them: a launch makes their pages inaccessible, and the
// first access to a page adds it to those that each block has of its own.
static unsigned char* static_shared;
static size_t static_shared_size;

struct Span {
    size_t offset, bytes;
};

// The parts of static shared memory that the kernel has used, and pages with other variables.
static std::vector<Span> used_statics;

static const size_t STACK_SIZE = 128 << 10;
static const size_t MAX_SHARED = 227 << 10;
static const int MAX_THREADS = 1024;
// Rounds in which threads only poll counters that do not change, before this is a deadlock.
static const int MAX_POLLS = 1000;

// Where to continue, for __builtin_setjmp: setjmp would spend more time than many a thread between two barriers.
typedef void* Place[5];

struct Fiber : Thread {
    Place place;
    ucontext_t start;
    unsigned char* stack = nullptr;
    bool started = false;
    bool done = true;
};

// A block that runs; reused for one after the other.
struct Block {
    Dim3 index;
    Group group;
    Warp warps[MAX_THREADS / 32];
    Fiber fibers[MAX_THREADS];
    Watch* watch;
    // Dynamic shared memory ends here.
    unsigned char* shared_end;
    // Static shared memory while another block runs, which has it in the same place.
    std::vector<unsigned char> statics;
};

static std::vector<std::unique_ptr<Block>> resident;
// The block whose threads run.
static Block* active;
static size_t resident_blocks = 1;
static uint64_t polls;
static Place scheduler;
static const Entry* kernel;
static const uint64_t* arguments;
static std::string failure;
static bool reverse_order;
// When asynchronous copies land.
enum class CopyTiming { AT_WAIT, AT_START, RANDOM };
static CopyTiming copy_timing;
static uint64_t seed, random_state;

// A number below `limit` (SplitMix64).
static size_t random_below(size_t limit) {
    uint64_t x = random_state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (x ^ x >> 31) % limit;
}

// A function that calls __builtin_setjmp must not call __builtin_longjmp.
[[noreturn]] __attribute__((noinline)) static void continue_at(Place& place) { __builtin_longjmp(place, 1); }

void yield() {
    if (!__builtin_setjmp(static_cast<Fiber*>(current)->place)) continue_at(scheduler);
}

void fail(const char* what) {
    char text[400];
    snprintf(text, sizeof text, "%s: %s (block %u %u %u, thread %d)", kernel->name, what, blockIdx.x, blockIdx.y,
             blockIdx.z, current->number);
    if (failure.empty()) failure = text;
    continue_at(scheduler);
}

static size_t page_size() {
    static const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    return size;
}

// Memory followed by an inaccessible guard page.
static unsigned char* allocate_guarded(size_t bytes) {
    size_t page = page_size();
    size_t padded = (bytes + 15) / 16 * 16, pages = (padded + page - 1) / page * page + page;
    void* all = mmap(nullptr, pages + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all, pages, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return (unsigned char*)all + pages - padded;
}

static bool contains(const unsigned char* memory, size_t size, const void* from, size_t bytes) {
    size_t offset = (size_t)from - (size_t)memory;
    return offset < size && bytes <= size - offset;
}

bool is_shared(const void* from, size_t bytes) {
    return contains(shared_memory, shared_size, from, bytes) || contains(static_shared, static_shared_size, from, bytes);
}

// Called for each loaded object; the program is the first.
static int find_static_shared(dl_phdr_info* program, size_t, void*) {
    for (int i = 0; i < program->dlpi_phnum; i++) {
        if (program->dlpi_phdr[i].p_type != PT_TLS) continue;
        static_shared = (unsigned char*)program->dlpi_tls_data;
        static_shared_size = program->dlpi_phdr[i].p_memsz;
    }
    return 1;
}

// Makes the pages of static shared memory inaccessible, except those that other variables share.
static void protect_statics() {
    size_t first = (size_t)static_shared, end = first + static_shared_size, page = page_size();
    size_t inner = (first + page - 1) / page * page, inner_end = end / page * page;
    used_statics.clear();
    if (inner >= inner_end) {
        used_statics.push_back({0, static_shared_size});
        return;
    }
    mprotect((void*)inner, inner_end - inner, PROT_NONE);
    used_statics.push_back({0, inner - first});
    used_statics.push_back({inner_end - first, end - inner_end});
}

// Adds the page of static shared memory at an address, if it is inaccessible.
static bool use_statics(const void* at) {
    if (!contains(static_shared, static_shared_size, at, 1)) return false;
    unsigned char* page = (unsigned char*)((size_t)at / page_size() * page_size());
    if (mprotect(page, page_size(), PROT_READ | PROT_WRITE) != 0) return false;
    Span span = {(size_t)(page - static_shared), page_size()};
    used_statics.push_back(span);
    memset(page, 0xff, span.bytes);
    for (auto& block : resident) memset(block->statics.data() + span.offset, 0xff, span.bytes);
    return true;
}

static void leave_group(Group& group) {
    progress++;
    group.alive--;
    if (group.arrived > 0 && group.arrived == group.alive) {
        group.arrived = 0;
        group.generation++;
    }
}

static void land(Copy& copy) {
    if (copy.landed) return;
    copy.landed = true;
    if (copy.valid) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
}

void start_copy(Copy copy) {
    copy_starts(copy.to);
    if (copy_timing == CopyTiming::AT_START || (copy_timing == CopyTiming::RANDOM && random_below(4) == 0)) land(copy);
    current->copies.back().push_back(copy);
}

void finish_copy(Copy& copy) {
    copy_finishes(copy.to);
    land(copy);
}

// Lands some copies of a random thread of a block.
static void land_some(Block& block, int threads) {
    for (auto& group : block.fibers[random_below((size_t)threads)].copies) {
        for (Copy& copy : group) {
            if (random_below(2) == 0) land(copy);
        }
    }
}

// A fiber is reused for one thread after the other.
static void fiber_main() {
    while (true) {
        kernel->call(arguments);
        static_cast<Fiber*>(current)->done = true;
        thread_ends();
        if (own_warp().arrived > 0) fail("a thread returns while others of its warp wait for it");
        leave_group(own_warp());
        leave_group(*block_group);
        yield();
    }
}

static void resume(Fiber& fiber) {
    current = &fiber;
    threadIdx = {(unsigned)fiber.number, 0, 0};
    if (__builtin_setjmp(scheduler)) return;
    if (fiber.started) continue_at(fiber.place);
    fiber.started = true;
    getcontext(&fiber.start);
    if (!fiber.stack) fiber.stack = (unsigned char*)malloc(STACK_SIZE);
    fiber.start.uc_stack.ss_sp = fiber.stack;
    fiber.start.uc_stack.ss_size = STACK_SIZE;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, fiber_main, 0);
    setcontext(&fiber.start);
}

// Selects the block whose threads run.
static void activate(Block& block) {
    if (active == &block) return;
    for (Span used : used_statics) {
        unsigned char* here = static_shared + used.offset;
        if (active) memcpy(active->statics.data() + used.offset, here, used.bytes);
        memcpy(here, block.statics.data() + used.offset, used.bytes);
    }
    active = &block;
    block_group = &block.group;
    warps_of_block = block.warps;
    // Aligned no more than on a GPU.
    shared_memory = block.shared_end - (shared_size + 15) / 16 * 16;
    blockIdx = block.index;
    resume_watch(block.watch);
}

static void begin(Block& block, Dim3 index, int threads) {
    block.index = index;
    block.group = Group();
    block.group.alive = threads;
    for (int i = 0; i * 32 < threads; i++) {
        Warp& warp = block.warps[i];
        (Group&)warp = Group();
        warp.epoch = 0;
        warp.alive = threads - i * 32 < 32 ? threads - i * 32 : 32;
    }
    for (int i = 0; i < threads; i++) {
        block.fibers[i].number = i;
        block.fibers[i].copies.assign(1, {});
        block.fibers[i].done = false;
    }
    for (Span used : used_statics) memset(block.statics.data() + used.offset, 0xff, used.bytes);
    activate(block);
    memset(shared_memory, 0xff, shared_size);
    begin_watch(block.watch, {{"dynamic", shared_memory, shared_size}, {"static", static_shared, static_shared_size}});
}

// Runs every thread of a block up to the next operation that waits.
static void run_round(Block& block, int threads) {
    activate(block);
    for (int i = 0; i < threads && failure.empty(); i++) {
        Fiber& fiber = block.fibers[reverse_order ? threads - 1 - i : i];
        if (fiber.done) continue;
        if (copy_timing == CopyTiming::RANDOM) land_some(block, threads);
        resume(fiber);
    }
    if (block.group.alive == 0) active = nullptr;
}

static void run_grid(const uint64_t (&grid)[3], int threads) {
    uint64_t count = grid[0] * grid[1] * grid[2], next = 0;
    auto begin_next = [&](Block& block) {
        uint64_t number = reverse_order ? count - 1 - next : next;
        next++;
        uint64_t x = number % grid[0], y = number / grid[0] % grid[1], z = number / grid[0] / grid[1];
        begin(block, {(unsigned)x, (unsigned)y, (unsigned)z}, threads);
    };
    std::vector<Block*> running;
    for (auto& block : resident) block->group.alive = 0;
    for (size_t i = 0; i < resident_blocks && next < count; i++) {
        if (i == resident.size()) {
            resident.emplace_back(new Block);
            resident[i]->shared_end = allocate_guarded(MAX_SHARED) + MAX_SHARED;
            resident[i]->statics.resize(static_shared_size);
            resident[i]->watch = new_watch();
        }
        running.push_back(resident[i].get());
        begin_next(*running[i]);
    }
    int idle_rounds = 0;
    while (!running.empty() && failure.empty()) {
        uint64_t before = progress, polls_before = polls;
        for (size_t i = 0; i < running.size() && failure.empty();) {
            Block& block = *running[i];
            run_round(block, threads);
            if (block.group.alive == 0 && next == count) {
                running.erase(running.begin() + (ptrdiff_t)i);
                continue;
            }
            if (block.group.alive == 0) begin_next(block);
            i++;
        }
        idle_rounds = progress == before ? idle_rounds + 1 : 0;
        if (failure.empty() && idle_rounds > (polls == polls_before ? 0 : MAX_POLLS)) {
            failure = std::string(kernel->name) + ": deadlock: threads wait at a barrier that others never reach";
            if (polls != polls_before) failure = std::string(kernel->name) + ": deadlock: threads poll a counter in vain";
        }
    }
    active = nullptr;
    end_watch();
    // The fibers of a failed block are suspended midway.
    if (failure.empty()) return;
    for (auto& block : resident) {
        for (Fiber& fiber : block->fibers) fiber.started = false;
    }
}

unsigned atomic_add(unsigned* counter, unsigned x) {
    if ((size_t)counter % sizeof *counter != 0) fail("a counter is not aligned to 4 bytes");
    if (is_shared(counter, sizeof *counter)) fail("a counter is not in global memory");
    yield();
    x == 0 ? polls++ : progress++;
    unsigned before = *counter;
    *counter = before + x;
    return before;
}

static void read_all(void* to, size_t bytes) {
    if (bytes > 0 && fread(to, 1, bytes, stdin) != bytes) exit(0);
}

static uint64_t read_word() {
    uint64_t word;
    read_all(&word, sizeof word);
    return word;
}

static void answer(const void* from, size_t bytes) {
    fwrite(from, 1, bytes, stdout);
    fflush(stdout);
}

static void answer_text(const std::string& text) {
    uint64_t length = text.size();
    fwrite(&length, 1, sizeof length, stdout);
    answer(text.data(), text.size());
}

static void launch() {
    std::string name(read_word(), ' ');
    read_all(&name[0], name.size());
    uint64_t grid[3] = {read_word(), read_word(), read_word()}, threads = read_word(), shared = read_word();
    std::vector<uint64_t> words(read_word());
    read_all(words.data(), 8 * words.size());
    failure.clear();
    random_state = seed;
    kernel = Entry::first;
    while (kernel && name != kernel->name) kernel = kernel->next;
    if (!kernel) return answer_text("no kernel is named " + name);
    if ((size_t)kernel->count != words.size()) {
        return answer_text(name + " takes " + std::to_string(kernel->count) + " arguments, not " + std::to_string(words.size()));
    }
    if (threads == 0 || threads > (uint64_t)kernel->threads || shared > MAX_SHARED) {
        return answer_text(name + ": blocks of " + std::to_string(threads) + " threads and " + std::to_string(shared) + " bytes");
    }
    arguments = words.data();
    shared_size = shared;
    gridDim = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
    blockDim = {(unsigned)threads, 1, 1};
    protect_statics();
    run_grid(grid, (int)threads);
    answer_text(failure);
}

static void on_fault(int, siginfo_t* fault, void*) {
    if (use_statics(fault->si_addr)) return;
    static char text[200];
    int length = snprintf(text, sizeof text, "%s accesses memory out of bounds (block %u %u %u, thread %d)\n",
                          kernel ? kernel->name : "the host", blockIdx.x, blockIdx.y, blockIdx.z,
                          current ? current->number : 0);
    (void)!::write(2, text, (size_t)length);
    _exit(1);
}

int main() {
    dl_iterate_phdr(find_static_shared, nullptr);
    static unsigned char signal_stack[64 << 10];
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
    for (int request; (request = getchar()) != EOF;) {
        switch (request) {
        case 'a': {
            uint64_t bytes = read_word(), place = (uint64_t)allocate_guarded(bytes);
            memset((void*)place, 0xff, (bytes + 15) / 16 * 16);
            answer(&place, sizeof place);
            break;
        }
        case 'w': {
            void* to = (void*)read_word();
            read_all(to, read_word());
            break;
        }
        case 'r': {
            const void* from = (const void*)read_word();
            answer(from, read_word());
            break;
        }
        case 'f': {
            void* to = (void*)read_word();
            int byte = (int)read_word();
            memset(to, byte, read_word());
            break;
        }
        case 'm': {
            reverse_order = read_word() != 0;
            copy_timing = (CopyTiming)read_word();
            seed = read_word();
            resident_blocks = read_word();
            break;
        }
        case 'l': launch(); break;
        default: return 1;
        }
    }
    return 0;
}
