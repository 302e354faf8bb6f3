// Helpers of the C tests: checks that print where they failed, and models.
#ifndef SISKIN_TESTS_CHECK_H
#define SISKIN_TESTS_CHECK_H

#include <siskin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);               \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

// Checks that a call succeeded.
#define OK(call) ok((call), __FILE__, __LINE__)
// Checks that a call failed with this code.
#define FAILS(code, call) fails((code), (call), __FILE__, __LINE__)
// A NUL-terminated text argument and its length.
#define TEXT(text) (text), SISKIN_NUL_TERMINATED

static inline void ok(siskin_error *error, const char *file, int line) {
    if (error == NULL) return;
    fprintf(stderr, "%s:%d: error %d: %s: %s\n", file, line, (int)siskin_error_code(error),
            siskin_error_location(error), siskin_error_message(error));
    siskin_error_free(error);
    exit(1);
}

static inline void fails(siskin_error_kind code, siskin_error *error, const char *file, int line) {
    if (siskin_error_code(error) != code) {
        fprintf(stderr, "%s:%d: error %d (%s), not %d\n", file, line, (int)siskin_error_code(error),
                siskin_error_message(error), (int)code);
        exit(1);
    }
    CHECK(code == 0 || strlen(siskin_error_message(error)) > 0);
    siskin_error_free(error);
}

// Returns the path of a model in the folder that is the first argument of the program.
static inline const char *model_path(char **arguments, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s.siskin", arguments[1], name);
    return path;
}

static inline siskin_model *open_model(char **arguments, const char *name) {
    siskin_model *model = NULL;
    const char *path = model_path(arguments, name);
    siskin_model_options *options = NULL;
    OK(siskin_model_options_new(&options));
    OK(siskin_model_options_set_threads(options, 2));
    OK(siskin_model_open(TEXT(path), options, &model));
    siskin_model_options_free(options);
    return model;
}

// Creates options for greedy decoding.
static inline siskin_sampler *greedy_sampler(void) {
    siskin_sampler *sampler = NULL;
    OK(siskin_sampler_new(&sampler));
    OK(siskin_sampler_set(sampler, SISKIN_SAMPLER_TEMPERATURE, 0));
    return sampler;
}

// Creates options for greedy decoding of at most `max_tokens` tokens for an answer.
static inline siskin_session_options *greedy_options(size_t max_tokens) {
    siskin_sampler *sampler = greedy_sampler();
    siskin_session_options *options = NULL;
    OK(siskin_session_options_new(&options));
    OK(siskin_session_options_set_sampler(options, sampler));
    OK(siskin_session_options_set_max_tokens(options, max_tokens));
    siskin_sampler_free(sampler);
    return options;
}

// Creates a session with greedy decoding that generates at most `max_tokens` tokens for an answer.
static inline siskin_session *greedy(const siskin_model *model, size_t max_tokens) {
    siskin_session_options *options = greedy_options(max_tokens);
    siskin_session *session = NULL;
    OK(siskin_session_new(model, options, &session));
    siskin_session_options_free(options);
    return session;
}

// Returns whether the bytes are whole characters of UTF-8.
static inline bool is_utf8(const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t at = 0;
    while (at < length) {
        size_t more = bytes[at] < 0x80 ? 0 : bytes[at] >= 0xf0 ? 3 : bytes[at] >= 0xe0 ? 2 : bytes[at] >= 0xc2 ? 1 : 9;
        if (more > 3 || at + more >= length) return false;
        for (size_t i = 1; i <= more; i++) {
            if ((bytes[at + i] & 0xc0) != 0x80) return false;
        }
        at += more + 1;
    }
    return true;
}

// Writes the rest of an answer to `text` and its tokens to `ids`. Returns the number of tokens.
static inline size_t take_answer(siskin_session *session, char *text, size_t room, uint32_t *ids) {
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    size_t count = 0, length = 0;
    for (;;) {
        OK(siskin_session_next(session, &chunk));
        if (chunk.done) break;
        CHECK(is_utf8(chunk.text, chunk.length) && chunk.text[chunk.length] == 0);
        CHECK(length + chunk.length < room);
        memcpy(text + length, chunk.text, chunk.length + 1);
        length += chunk.length;
        if (chunk.has_token) ids[count++] = chunk.token;
    }
    CHECK(chunk.length == 0 && chunk.finish_reason != SISKIN_FINISH_REASON_NONE);
    text[length] = 0;
    return count;
}

#endif
