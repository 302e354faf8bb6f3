// Two threads at once: exclusive calls, concurrent reads, and cancellation.
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { ROUNDS = 200 };

static atomic_int busy, done, canceled;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// Results allowed while another thread uses the same handle.
static void either(siskin_error *error) {
    int code = siskin_error_code(error);
    // The context fills up if the other thread keeps this one from resetting it.
    CHECK(code == 0 || code == SISKIN_ERROR_BUSY || code == SISKIN_ERROR_CANCELED || code == SISKIN_ERROR_STATE ||
          code == SISKIN_ERROR_TOO_LONG);
    busy += code == SISKIN_ERROR_BUSY;
    done += code == 0;
    canceled += code == SISKIN_ERROR_CANCELED;
    siskin_error_free(error);
}

static void *use_session(void *given) {
    siskin_session *session = given;
    for (int round = 0; round < ROUNDS; round++) {
        siskin_text_chunk chunk = {.struct_size = sizeof chunk};
        siskin_stats stats = {.struct_size = sizeof stats};
        either(siskin_session_prompt_raw(session, TEXT("ab"), false));
        either(siskin_session_next(session, &chunk));
        either(siskin_session_stats(session, &stats));
        either(siskin_session_trim(session, SISKIN_TRIM_UNUSED));
        if (round % 16 == 0) either(siskin_session_cancel(session));
        if (round % 32 == 0) either(siskin_session_reset(session));
    }
    return NULL;
}

static void *use_model(void *given) {
    const siskin_model *model = given;
    for (int round = 0; round < 20; round++) {
        uint32_t ids[8];
        char text[64];
        siskin_session *session = greedy(model, 4);
        OK(siskin_session_prompt(session, TEXT("hello")));
        take_answer(session, text, sizeof text, ids);
        siskin_session_free(session);
    }
    return NULL;
}

static void both(void *(*work)(void *), void *given) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, work, given) == 0);
    work(given);
    CHECK(pthread_join(other, NULL) == 0);
}

static void *cancel_after(void *given) {
    const siskin_cancel_handle *cancel_handle = given;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    OK(siskin_cancel_handle_cancel(cancel_handle));
    return NULL;
}

static void *pause_after(void *given) {
    const siskin_session *session = given;
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    OK(siskin_session_pause(session));
    return NULL;
}

// Canceling a long answer takes effect; the text so far stays, and generation can continue.
static void canceling(const siskin_model *model) {
    siskin_session *session = greedy(model, 0);
    siskin_cancel_handle *cancel_handle = NULL;
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    pthread_t other;
    OK(siskin_session_cancel_handle(session, &cancel_handle));
    OK(siskin_session_prompt(session, TEXT("go on for ever")));
    CHECK(pthread_create(&other, NULL, cancel_after, cancel_handle) == 0);
    siskin_error *error = NULL;
    double end = seconds() + 120;
    while (error == NULL && seconds() < end) {
        error = siskin_session_next(session, &chunk);
        if (error == NULL && chunk.done) error = siskin_session_prompt(session, TEXT("and on"));
        if (siskin_error_code(error) == SISKIN_ERROR_TOO_LONG) {
            siskin_error_free(error);
            error = NULL;
            OK(siskin_session_reset(session));
            error = siskin_session_prompt(session, TEXT("again"));
        }
    }
    FAILS(SISKIN_ERROR_CANCELED, error);
    CHECK(pthread_join(other, NULL) == 0);
    OK(siskin_session_reset(session));
    OK(siskin_session_prompt(session, TEXT("hi")));
    OK(siskin_session_next(session, &chunk));
    // Paused, then resumed.
    CHECK(pthread_create(&other, NULL, pause_after, session) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    FAILS(SISKIN_ERROR_PAUSED, siskin_session_next(session, &chunk));
    FAILS(SISKIN_ERROR_PAUSED, siskin_session_prompt(session, TEXT("hi")));
    OK(siskin_session_resume(session));
    OK(siskin_session_next(session, &chunk));
    CHECK(chunk.has_token || chunk.done);
    // A cancellation that has not ended a call is cleared.
    OK(siskin_cancel_handle_cancel(cancel_handle));
    OK(siskin_cancel_handle_reset(cancel_handle));
    OK(siskin_session_next(session, &chunk));
    siskin_cancel_handle_free(cancel_handle);
    siskin_session_free(session);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    siskin_model *model = open_model(arguments, "chat");
    both(use_model, model);
    siskin_session *session = greedy(model, 4);
    both(use_session, session);
    siskin_session_free(session);
    CHECK(done > 0);
    canceling(model);
    siskin_model_free(model);
    printf("threads: ok (%d done, %d busy, %d canceled)\n", (int)done, (int)busy, (int)canceled);
    return 0;
}
