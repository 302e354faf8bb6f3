// What the C tests share: checks that say where they failed, and models to work with.
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

// It went well.
#define OK(call) ok((call), __FILE__, __LINE__)
// It failed with this code.
#define FAILS(code, call) fails((code), (call), __FILE__, __LINE__)
// A text and its length.
#define TEXT(text) (text), strlen(text)

static inline void ok(siskin_error *error, const char *file, int line) {
    if (error == NULL) return;
    fprintf(stderr, "%s:%d: error %d: %s: %s\n", file, line, (int)siskin_error_code(error),
            siskin_error_place(error), siskin_error_message(error));
    siskin_error_free(error);
    exit(1);
}

static inline void fails(int code, siskin_error *error, const char *file, int line) {
    if (siskin_error_code(error) != code) {
        fprintf(stderr, "%s:%d: error %d (%s), not %d\n", file, line, (int)siskin_error_code(error),
                siskin_error_message(error), code);
        exit(1);
    }
    CHECK(code == 0 || strlen(siskin_error_message(error)) > 0);
    siskin_error_free(error);
}

// The path of one of the models in the folder that is the program's first argument.
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

// A session that always chooses the likeliest token, and writes so many at most.
static inline siskin_session *greedy(const siskin_model *model, size_t most) {
    siskin_sampler *sampler = NULL;
    siskin_session_options *options = NULL;
    siskin_session *session = NULL;
    OK(siskin_sampler_new(&sampler));
    OK(siskin_sampler_set(sampler, SISKIN_SAMPLER_TEMPERATURE, 0));
    OK(siskin_session_options_new(&options));
    OK(siskin_session_options_set_sampler(options, sampler));
    OK(siskin_session_options_set_max_tokens(options, most));
    OK(siskin_session_new(model, options, &session));
    siskin_session_options_free(options);
    siskin_sampler_free(sampler);
    return session;
}

// Whether bytes are whole characters of UTF-8.
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

// Puts the rest of an answer behind what `text` holds, and its tokens into `ids`; gives how many tokens.
static inline size_t take_answer(siskin_session *session, char *text, size_t room, uint32_t *ids) {
    siskin_piece piece = {.struct_size = sizeof piece};
    size_t count = 0, length = 0;
    for (;;) {
        OK(siskin_session_next(session, &piece));
        if (piece.done) break;
        CHECK(is_utf8(piece.text, piece.length) && piece.text[piece.length] == 0);
        CHECK(length + piece.length < room);
        memcpy(text + length, piece.text, piece.length + 1);
        length += piece.length;
        if (piece.has_token) ids[count++] = piece.token;
    }
    CHECK(piece.length == 0 && piece.ended != SISKIN_ENDED_NOT);
    text[length] = 0;
    return count;
}

#endif
