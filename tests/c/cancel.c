// Measures the latency of canceling a long prompt. Arguments: the model, and the maximum in milliseconds.
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { TOKENS = 4096, ROUNDS = 12 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct request {
    const siskin_cancel_handle *cancel_handle;
    long nanoseconds;
    double at;
};

static void *cancel_later(void *given) {
    struct request *request = given;
    nanosleep(&(struct timespec){.tv_nsec = request->nanoseconds}, NULL);
    request->at = seconds();
    OK(siskin_cancel_handle_cancel(request->cancel_handle));
    return NULL;
}

static int by_size(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    siskin_model *model = NULL;
    siskin_session_options *options = NULL;
    siskin_session *session = NULL;
    siskin_cancel_handle *cancel_handle = NULL;
    OK(siskin_model_open(TEXT(arguments[1]), NULL, &model));
    OK(siskin_session_options_new(&options));
    OK(siskin_session_options_set_context(options, TOKENS + 64));
    OK(siskin_session_new(model, options, &session));
    OK(siskin_session_cancel_handle(session, &cancel_handle));
    static uint32_t ids[TOKENS];
    for (size_t i = 0; i < TOKENS; i++) ids[i] = 1000 + (uint32_t)(i * 7919 % 20000);
    double took[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct request request = {.cancel_handle = cancel_handle, .nanoseconds = 50000000L + 37000000L * round};
        pthread_t other;
        CHECK(pthread_create(&other, NULL, cancel_later, &request) == 0);
        siskin_error *error = siskin_session_prompt_tokens(session, ids, TOKENS);
        double end = seconds();
        CHECK(pthread_join(other, NULL) == 0);
        FAILS(SISKIN_ERROR_CANCELED, error);
        took[round] = end - request.at;
        // No token of the prompt was kept.
        siskin_stats stats = {.struct_size = sizeof stats};
        OK(siskin_session_stats(session, &stats));
        CHECK(stats.position == 0);
    }
    qsort(took, ROUNDS, sizeof *took, by_size);
    double middle = took[ROUNDS / 2] * 1e3;
    printf("cancel: of %d cancellations, the median took %.1f ms, the slowest %.1f\n", ROUNDS, middle, took[ROUNDS - 1] * 1e3);
    // On a busy machine, single calls may be late.
    CHECK(middle <= atof(arguments[2]));
    siskin_cancel_handle_free(cancel_handle);
    siskin_session_free(session);
    siskin_session_options_free(options);
    siskin_model_free(model);
    return 0;
}
