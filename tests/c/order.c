// Sources of models, and freeing handles in any order.
#include "check.h"
#include <fcntl.h>
#include <unistd.h>

enum { SHIFT = 16384 };

static int released;

static void release(void *user) {
    released++;
    free(user);
}

// Reads a file to `shift` bytes after the start of the buffer.
static uint8_t *bytes_of(const char *path, size_t shift, size_t *length) {
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *length = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*length + shift);
    CHECK(bytes != NULL && fread(bytes + shift, 1, *length, file) == *length);
    fclose(file);
    return bytes;
}

static void generate(const siskin_model *model, char *text) {
    uint32_t ids[8];
    siskin_session *session = greedy(model, 8);
    OK(siskin_session_prompt_raw(session, TEXT("hello"), false));
    take_answer(session, text, 256, ids);
    siskin_session_free(session);
}

static void sources(char **arguments) {
    char from_path[256], text[256], packed[4096];
    const char *path = model_path(arguments, "chat");
    siskin_model *model = NULL;
    OK(siskin_model_open(TEXT(path), NULL, &model));
    generate(model, from_path);
    siskin_model_free(model);

    size_t length = 0;
    uint8_t *bytes = bytes_of(path, 0, &length);
    OK(siskin_model_open_copy(bytes, length, NULL, &model));
    bytes[0] ^= 1;
    generate(model, text);
    CHECK(strcmp(text, from_path) == 0);
    siskin_model_free(model);
    FAILS(SISKIN_ERROR_CORRUPT, siskin_model_open_copy(bytes, length, NULL, &model));
    FAILS(SISKIN_ERROR_CORRUPT, siskin_model_open_copy(bytes, 0, NULL, &model));
    bytes[0] ^= 1;
    FAILS(SISKIN_ERROR_CORRUPT, siskin_model_open_copy(bytes, length / 2, NULL, &model));

    // Borrowed memory is released once, after everything that uses it.
    OK(siskin_model_open_memory(bytes, length, bytes, release, NULL, &model));
    siskin_session *session = greedy(model, 8);
    siskin_model_free(model);
    CHECK(released == 0);
    OK(siskin_session_prompt_raw(session, TEXT("hello"), false));
    uint32_t ids[8];
    take_answer(session, text, sizeof text, ids);
    CHECK(strcmp(text, from_path) == 0);
    siskin_session_free(session);
    CHECK(released == 1);
    bytes = calloc(64, 1);
    FAILS(SISKIN_ERROR_CORRUPT, siskin_model_open_memory(bytes, 64, bytes, release, NULL, &model));
    CHECK(released == 2);
    siskin_model *none = NULL;
    FAILS(SISKIN_ERROR_NULL, siskin_model_open_memory(NULL, 64, NULL, release, NULL, &none));
    CHECK(released == 3 && none == NULL);

    // As an asset at an offset in a package.
    snprintf(packed, sizeof packed, "%s/package.bin", arguments[1]);
    bytes = bytes_of(path, SHIFT, &length);
    memset(bytes, 0xa5, SHIFT);
    FILE *file = fopen(packed, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, length + SHIFT, file) == length + SHIFT);
    CHECK(fwrite("behind", 1, 6, file) == 6 && fclose(file) == 0);
    free(bytes);
    int descriptor = open(packed, O_RDONLY);
    CHECK(descriptor >= 0);
    OK(siskin_model_open_descriptor(descriptor, SHIFT, length, NULL, &model));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_open_descriptor(descriptor, SHIFT, length + 7, NULL, &none));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_open_descriptor(-1, 0, 0, NULL, &none));
    close(descriptor);
    generate(model, text);
    CHECK(strcmp(text, from_path) == 0 && none == NULL);
    siskin_model_free(model);
    unlink(packed);
    FAILS(SISKIN_ERROR_IO, siskin_model_open(TEXT("/nowhere/model.siskin"), NULL, &none));
}

static void order(char **arguments) {
    siskin_model *chat = open_model(arguments, "chat"), *classes = open_model(arguments, "classes");
    siskin_session *session = greedy(chat, 4);
    siskin_cancel_handle *session_cancel = NULL, *encoder_cancel = NULL;
    OK(siskin_session_cancel_handle(session, &session_cancel));
    siskin_encoder *encoder = NULL;
    siskin_strings *texts = NULL;
    OK(siskin_strings_new(&texts));
    OK(siskin_strings_add(texts, TEXT("a b")));
    OK(siskin_encoder_new(classes, true, 0, SISKIN_KV_CACHE_AUTO, &encoder));
    OK(siskin_encoder_cancel_handle(encoder, &encoder_cancel));
    siskin_model_free(chat);
    siskin_model_free(classes);
    OK(siskin_encoder_classify(encoder, texts));
    siskin_strings_free(texts);
    siskin_prediction prediction = {.struct_size = sizeof prediction};
    OK(siskin_encoder_prediction(encoder, 0, 0, &prediction));
    CHECK(prediction.length > 0);
    siskin_encoder_free(encoder);
    OK(siskin_session_prompt(session, TEXT("hi")));
    siskin_session_free(session);
    // A cancel handle may outlive its target.
    OK(siskin_cancel_handle_cancel(session_cancel));
    OK(siskin_cancel_handle_cancel(encoder_cancel));
    siskin_cancel_handle_free(encoder_cancel);
    siskin_cancel_handle_free(session_cancel);
}

static int messages;

static void receive_log(void *user, siskin_log_level level, const char *text, size_t length) {
    CHECK(user == &messages && level >= SISKIN_LOG_INFO && is_utf8(text, length));
    // Library calls are not allowed in this callback.
    siskin_strings *texts = NULL;
    FAILS(SISKIN_ERROR_BUSY, siskin_strings_new(&texts));
    CHECK(texts == NULL);
    messages++;
}

static void count_release(void *user) { CHECK(user == &messages && ++released); }

static bool go_on(void *user, uint64_t done, uint64_t total) {
    CHECK(total == 0 || done <= total);
    ++*(int *)user;
    return true;
}

static bool give_up(void *user, uint64_t done, uint64_t total) {
    (void)user, (void)done, (void)total;
    return false;
}

// A folder of another format is packed on opening.
static void packing(char **arguments) {
    char folder[4096];
    int steps = 0;
    siskin_model *model = NULL;
    siskin_model_options *options = NULL;
    snprintf(folder, sizeof folder, "%s/chat", arguments[1]);
    OK(siskin_log_set(receive_log, &messages, count_release));
    OK(siskin_model_options_new(&options));
    OK(siskin_model_options_set_cache_mode(options, SISKIN_CACHE_OFF));
    OK(siskin_model_options_set_progress(options, go_on, &steps, NULL));
    OK(siskin_model_options_set_quantization(options, TEXT("w8r")));
    OK(siskin_model_open(TEXT(folder), options, &model));
    CHECK(steps > 1);
    char text[256];
    generate(model, text);
    siskin_model_free(model);
    OK(siskin_model_options_set_progress(options, give_up, NULL, NULL));
    FAILS(SISKIN_ERROR_CANCELED, siskin_model_open(TEXT(folder), options, &model));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_options_set_disabled_cpu_features(options, TEXT("mmx")));
    OK(siskin_model_options_set_disabled_cpu_features(options, TEXT("avx512, amx")));
    siskin_model_options_free(options);
    int before = released;
    OK(siskin_log_set(NULL, NULL, NULL));
    CHECK(released == before + 1);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    sources(arguments);
    order(arguments);
    packing(arguments);
    puts("order: ok");
    return 0;
}
