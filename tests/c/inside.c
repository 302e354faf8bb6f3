// Internal errors, with the functions that only test builds of the library export.
#include "check.h"
#include <pthread.h>
#include <time.h>

siskin_error *siskin_testing_panic(siskin_session *session);
siskin_error *siskin_testing_error(siskin_error_kind code);
siskin_error *siskin_testing_hold(siskin_session *session, uint32_t milliseconds);

static void *hold(void *session) {
    OK(siskin_testing_hold(session, 300));
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    siskin_model *model = open_model(arguments, "chat");
    siskin_session *session = greedy(model, 4);
    siskin_text_chunk chunk = {.struct_size = sizeof chunk, .token = 17};
    OK(siskin_testing_error((siskin_error_kind)0));
    // Errors of control flow are static: they are not freed here, and nothing leaks.
    const siskin_error_kind flow[] = {SISKIN_ERROR_CANCELED, SISKIN_ERROR_BUSY};
    for (size_t i = 0; i < 2; i++) {
        siskin_error *first = siskin_testing_error(flow[i]), *second = siskin_testing_error(flow[i]);
        CHECK(first == second && siskin_error_code(first) == flow[i]);
        siskin_error_free(first);
        CHECK(siskin_error_code(second) == flow[i]);
    }
    const int codes[] = {SISKIN_ERROR_IO, SISKIN_ERROR_TOO_LONG, SISKIN_ERROR_BUSY, SISKIN_ERROR_PANIC, 12345};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) FAILS(codes[i], siskin_testing_error((siskin_error_kind)codes[i]));

    // A concurrent call, and a concurrent free, return an error.
    pthread_t other;
    siskin_stats stats = {.struct_size = sizeof stats};
    CHECK(pthread_create(&other, NULL, hold, session) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    FAILS(SISKIN_ERROR_BUSY, siskin_session_prompt(session, TEXT("x")));
    FAILS(SISKIN_ERROR_BUSY, siskin_session_stats(session, &stats));
    siskin_session_free(session);
    CHECK(pthread_join(other, NULL) == 0);
    OK(siskin_session_prompt(session, TEXT("x")));

    // A panic becomes an error code; the session is lost, the model remains usable.
    FAILS(SISKIN_ERROR_PANIC, siskin_testing_panic(session));
    FAILS(SISKIN_ERROR_POISONED, siskin_session_next(session, &chunk));
    FAILS(SISKIN_ERROR_POISONED, siskin_session_stats(session, &stats));
    CHECK(chunk.token == 17);
    siskin_session_free(session);
    session = greedy(model, 4);
    OK(siskin_session_prompt(session, TEXT("x")));
    OK(siskin_session_next(session, &chunk));
    siskin_session_free(session);
    siskin_model_free(model);
    puts("inside: ok");
    return 0;
}
