// Serves requests on standard input and output: memory operations, and kernel launches on that memory. A request is a
// letter and 8-byte integers; src/cuda.rs is the client.
#include "machine.h"
#include "races.h"

#include <csetjmp>
#include <csignal>
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <string>

Thread* current;
Warp* warps_of_block;
Group block_group;
unsigned char* shared_memory;
size_t shared_size;
uint64_t arrivals;

// The `__shared__` variables of all kernels.
static unsigned char* static_shared;
static size_t static_shared_size;

static const size_t STACK_SIZE = 128 << 10;
static const size_t MAX_SHARED = 227 << 10;
static const int MAX_THREADS = 1024;

struct Fiber {
    Thread thread;
    jmp_buf place;
    ucontext_t start;
    unsigned char* stack = nullptr;
    bool started = false;
    bool done = true;
};

static Fiber fibers[MAX_THREADS];
static jmp_buf scheduler;
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

void yield() {
    if (!_setjmp(fibers[current->number].place)) _longjmp(scheduler, 1);
}

void fail(const char* what) {
    char text[400];
    snprintf(text, sizeof text, "%s: %s (block %u %u %u, thread %d)", kernel->name, what, blockIdx.x, blockIdx.y,
             blockIdx.z, current->number);
    if (failure.empty()) failure = text;
    _longjmp(scheduler, 2);
}

// Memory followed by an inaccessible guard page.
static unsigned char* allocate_guarded(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
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

static void leave_group(Group& group) {
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

// Lands some copies of a random thread.
static void land_some(int threads) {
    for (auto& group : fibers[random_below((size_t)threads)].thread.copies) {
        for (Copy& copy : group) {
            if (random_below(2) == 0) land(copy);
        }
    }
}

// A fiber is reused for one thread after the other.
static void fiber_main() {
    while (true) {
        kernel->call(arguments);
        Fiber& own = fibers[current->number];
        own.done = true;
        arrivals++;
        thread_ends();
        if (own_warp().arrived > 0) fail("a thread returns while others of its warp wait for it");
        leave_group(own_warp());
        leave_group(block_group);
        yield();
    }
}

static void resume(int number) {
    Fiber& fiber = fibers[number];
    current = &fiber.thread;
    threadIdx = {(unsigned)number, 0, 0};
    if (int result = _setjmp(scheduler); result != 0) return;
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    getcontext(&fiber.start);
    if (!fiber.stack) fiber.stack = (unsigned char*)malloc(STACK_SIZE);
    fiber.start.uc_stack.ss_sp = fiber.stack;
    fiber.start.uc_stack.ss_size = STACK_SIZE;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, fiber_main, 0);
    setcontext(&fiber.start);
}

static void run_block(int threads) {
    static Warp warps[MAX_THREADS / 32];
    warps_of_block = warps;
    memset(shared_memory, 0xff, shared_size);
    memset(static_shared, 0xff, static_shared_size);
    watch({{"dynamic", shared_memory, shared_size}, {"static", static_shared, static_shared_size}});
    block_group = Group();
    block_group.alive = threads;
    for (int i = 0; i * 32 < threads; i++) {
        (Group&)warps[i] = Group();
        warps[i].epoch = 0;
        warps[i].alive = threads - i * 32 < 32 ? threads - i * 32 : 32;
    }
    for (int i = 0; i < threads; i++) {
        fibers[i].thread.number = i;
        fibers[i].thread.copies.assign(1, {});
        fibers[i].done = false;
    }
    while (block_group.alive > 0 && failure.empty()) {
        uint64_t before = arrivals;
        for (int i = 0; i < threads && failure.empty(); i++) {
            int number = reverse_order ? threads - 1 - i : i;
            if (fibers[number].done) continue;
            if (copy_timing == CopyTiming::RANDOM) land_some(threads);
            resume(number);
        }
        if (failure.empty() && block_group.alive > 0 && arrivals == before) {
            for (int i = 0; i < threads; i++) {
                if (!fibers[i].done) current = &fibers[i].thread;
            }
            failure = std::string(kernel->name) + ": deadlock: threads wait at a barrier that others never reach";
        }
    }
    end_watch();
    // The fibers of a failed block are suspended midway.
    if (!failure.empty()) {
        for (Fiber& fiber : fibers) fiber.started = false;
    }
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

// The dynamic shared memory ends at `shared_end`, and is aligned no more than on a GPU.
static void launch(unsigned char* shared_end) {
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
    shared_memory = shared_end - (shared + 15) / 16 * 16;
    gridDim = {(unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2]};
    blockDim = {(unsigned)threads, 1, 1};
    uint64_t blocks = grid[0] * grid[1] * grid[2];
    for (uint64_t i = 0; i < blocks && failure.empty(); i++) {
        uint64_t block = reverse_order ? blocks - 1 - i : i;
        blockIdx = {(unsigned)(block % grid[0]), (unsigned)(block / grid[0] % grid[1]), (unsigned)(block / grid[0] / grid[1])};
        run_block((int)threads);
    }
    answer_text(failure);
}

static void on_fault(int) {
    static char text[200];
    int length = snprintf(text, sizeof text, "%s accesses memory out of bounds (block %u %u %u, thread %d)\n",
                          kernel ? kernel->name : "the host", blockIdx.x, blockIdx.y, blockIdx.z,
                          current ? current->number : 0);
    (void)!::write(2, text, (size_t)length);
    _exit(1);
}

int main() {
    unsigned char* shared_end = allocate_guarded(MAX_SHARED) + MAX_SHARED;
    dl_iterate_phdr(find_static_shared, nullptr);
    static unsigned char signal_stack[64 << 10];
    stack_t stack = {};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_handler = on_fault;
    action.sa_flags = SA_ONSTACK;
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
            break;
        }
        case 'l': launch(shared_end); break;
        default: return 1;
        }
    }
    return 0;
}
