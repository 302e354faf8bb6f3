// Internal failures, by the functions that only test builds of the library export.
#include "check.h"
#include <pthread.h>
#include <time.h>

siskin_error *siskin_testing_panic(siskin_session *session);
siskin_error *siskin_testing_error(int32_t code);
siskin_error *siskin_testing_hold(siskin_session *session, uint32_t milliseconds);

static void *hold(void *session) {
    OK(siskin_testing_hold(session, 300));
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    siskin_model *model = open_model(arguments, "chat");
    siskin_session *session = greedy(model, 4);
    siskin_piece piece = {.struct_size = sizeof piece, .token = 17};
    OK(siskin_testing_error(0));
    const int codes[] = {SISKIN_ERROR_IO, SISKIN_ERROR_TOO_LONG, SISKIN_ERROR_BUSY, SISKIN_ERROR_PANIC, 12345};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) FAILS(codes[i], siskin_testing_error(codes[i]));

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
    FAILS(SISKIN_ERROR_POISONED, siskin_session_next(session, &piece));
    FAILS(SISKIN_ERROR_POISONED, siskin_session_stats(session, &stats));
    CHECK(piece.token == 17);
    siskin_session_free(session);
    session = greedy(model, 4);
    OK(siskin_session_prompt(session, TEXT("x")));
    OK(siskin_session_next(session, &piece));
    siskin_session_free(session);
    siskin_model_free(model);
    puts("inside: ok");
    return 0;
}
