// Engines: concurrent requests get the answers of sessions, can be canceled, and outlive their engine and model.
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { MAX_TOKENS = 24, ROOM = 4096, CLIENTS = 4 };

typedef struct {
    char text[ROOM];
    uint32_t ids[MAX_TOKENS];
    size_t count;
    siskin_finish_reason finish_reason;
} answer;

static const char *const PROMPTS[CLIENTS] = {"Why is the sky blue?", "What is a siskin?", "Why is the sky blue? And the sea?",
                                             "\xf0\x9f\x98\x80"};

// Waits for the end of an answer.
static void finish(siskin_generation *generation, siskin_text_chunk *chunk) {
    do OK(siskin_generation_next(generation, chunk));
    while (!chunk->done);
}

// Reads a whole answer, and frees the generation.
static void take(siskin_generation *generation, answer *answer) {
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    size_t length = 0;
    answer->count = 0;
    for (;;) {
        OK(siskin_generation_next(generation, &chunk));
        if (chunk.done) break;
        CHECK(is_utf8(chunk.text, chunk.length) && chunk.text[chunk.length] == 0 && length + chunk.length < ROOM);
        memcpy(answer->text + length, chunk.text, chunk.length);
        length += chunk.length;
        CHECK(!chunk.has_token || (chunk.byte_count > 0 && answer->count < MAX_TOKENS));
        if (chunk.has_token) answer->ids[answer->count++] = chunk.token;
    }
    answer->text[length] = 0;
    answer->finish_reason = chunk.finish_reason;
    siskin_generation_free(generation);
}

static bool same(const answer *one, const answer *other) {
    return one->count == other->count && strcmp(one->text, other->text) == 0 &&
           memcmp(one->ids, other->ids, one->count * sizeof *one->ids) == 0;
}

static siskin_request_options *greedy_request(void) {
    siskin_sampler *sampler = greedy_sampler();
    siskin_request_options *options = NULL;
    OK(siskin_request_options_new(&options));
    OK(siskin_request_options_set_sampler(options, sampler));
    OK(siskin_request_options_set_max_tokens(options, MAX_TOKENS));
    siskin_sampler_free(sampler);
    return options;
}

static siskin_engine *new_engine(bool background_thread) {
    siskin_engine_options *options = NULL;
    siskin_engine *engine = NULL;
    OK(siskin_engine_options_new(&options));
    OK(siskin_engine_options_set_threads(options, 2));
    OK(siskin_engine_options_set_background_thread(options, background_thread));
    OK(siskin_engine_new(options, &engine));
    siskin_engine_options_free(options);
    return engine;
}

// The answers of sessions.
static void expect(const siskin_model *model, answer *answers) {
    for (int i = 0; i < CLIENTS; i++) {
        siskin_session *session = greedy(model, MAX_TOKENS);
        OK(siskin_session_prompt(session, TEXT(PROMPTS[i])));
        answers[i].count = take_answer(session, answers[i].text, ROOM, answers[i].ids);
        siskin_session_free(session);
    }
}

typedef struct {
    const siskin_engine *engine;
    const char *prompt;
    const siskin_request_options *options;
    answer answer;
} client;

static void *ask(void *given) {
    client *client = given;
    siskin_generation *generation = NULL;
    OK(siskin_engine_submit(client->engine, 0, TEXT(client->prompt), client->options, &generation));
    take(generation, &client->answer);
    return NULL;
}

// Threads that ask at once, while another request is canceled.
static void concurrent(const siskin_engine *engine, const answer *expected) {
    siskin_request_options *options = greedy_request();
    siskin_generation *canceled = NULL, *freed = NULL;
    siskin_cancel_handle *cancel_handle = NULL;
    OK(siskin_engine_submit_raw(engine, 0, TEXT("And so on"), false, NULL, &canceled));
    OK(siskin_engine_submit_raw(engine, 0, TEXT("And so on"), true, NULL, &freed));
    OK(siskin_generation_cancel_handle(canceled, &cancel_handle));
    client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (client){.engine = engine, .prompt = PROMPTS[i], .options = options};
        CHECK(pthread_create(&threads[i], NULL, ask, &clients[i]) == 0);
    }
    OK(siskin_cancel_handle_cancel(cancel_handle));
    OK(siskin_cancel_handle_reset(cancel_handle));
    siskin_generation_free(freed);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(same(&clients[i].answer, &expected[i]));
    }
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    finish(canceled, &chunk);
    CHECK(chunk.finish_reason == SISKIN_FINISH_REASON_CANCELED);
    OK(siskin_generation_next(canceled, &chunk));
    CHECK(chunk.done && !chunk.has_token);
    siskin_generation_free(canceled);
    OK(siskin_cancel_handle_cancel(cancel_handle));
    siskin_cancel_handle_free(cancel_handle);
    siskin_request_options_free(options);
}

// Prompts of every kind, and what is counted.
static void prompts(const siskin_engine *engine, const siskin_model *model, const answer *expected) {
    siskin_request_options *options = greedy_request();
    siskin_generation *generation = NULL;
    answer answer;
    char json[ROOM];
    snprintf(json, sizeof json, "[{\"role\":\"user\",\"content\":\"%s\"}]", PROMPTS[0]);
    OK(siskin_engine_submit_messages(engine, 0, TEXT(json), options, &generation));
    siskin_generation_usage usage = {.struct_size = sizeof usage};
    OK(siskin_generation_read_usage(generation, &usage));
    CHECK(usage.prompt_tokens > 0 && usage.generated_tokens == 0);
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    finish(generation, &chunk);
    OK(siskin_generation_read_usage(generation, &usage));
    // It was asked before.
    CHECK(usage.cached_tokens + 1 == usage.prompt_tokens && usage.generated_tokens == expected[0].count);
    const char *message = NULL;
    size_t length = 0;
    FAILS(SISKIN_ERROR_STATE, siskin_generation_message(generation, &message, &length));
    siskin_generation_free(generation);

    uint32_t ids[64];
    OK(siskin_model_tokenize(model, TEXT("Once upon"), true, ids, 64, &length));
    OK(siskin_engine_submit_tokens(engine, 0, ids, length, options, &generation));
    take(generation, &answer);
    siskin_session *session = greedy(model, MAX_TOKENS);
    OK(siskin_session_prompt_raw(session, TEXT("Once upon"), false));
    char text[ROOM];
    CHECK(take_answer(session, text, ROOM, ids) == answer.count && strcmp(text, answer.text) == 0);
    siskin_session_free(session);

    siskin_error *error = siskin_engine_submit_chat(engine, 0, TEXT(json), TEXT("{}"), options, &generation);
    OK(error);
    finish(generation, &chunk);
    char whole[ROOM];
    OK(siskin_generation_message(generation, &message, &length));
    CHECK(length < ROOM && strstr(message, "\"role\":\"assistant\"") != NULL);
    memcpy(whole, message, length + 1);
    // A call after the end changes nothing.
    OK(siskin_generation_next(generation, &chunk));
    CHECK(chunk.done && chunk.length == 0);
    OK(siskin_generation_message(generation, &message, &length));
    CHECK(strcmp(whole, message) == 0);
    siskin_generation_free(generation);

    const char *choices = "[\"yes\",\"no\"]";
    OK(siskin_request_options_set_structured_output(options, SISKIN_STRUCTURED_OUTPUT_CHOICE, TEXT(choices)));
    OK(siskin_engine_submit(engine, 0, TEXT(PROMPTS[0]), options, &generation));
    take(generation, &answer);
    CHECK(strcmp(answer.text, "yes") == 0 || strcmp(answer.text, "no") == 0);
    CHECK(answer.finish_reason == SISKIN_FINISH_REASON_EOS);
    siskin_request_options_free(options);

    siskin_engine_stats stats = {.struct_size = sizeof stats};
    OK(siskin_engine_read_stats(engine, 0, &stats));
    CHECK(stats.steps > 0 && stats.rows > stats.steps && stats.prefix_hit_tokens > 0 && stats.waiting == 0);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_read_stats(engine, 1, &stats));
}

typedef struct {
    siskin_session *session;
    const char *prompt;
    answer answer;
} chat;

static void *say(void *given) {
    chat *chat = given;
    OK(siskin_session_prompt(chat->session, TEXT(chat->prompt)));
    chat->answer.count = take_answer(chat->session, chat->answer.text, ROOM, chat->answer.ids);
    return NULL;
}

// Sessions of the engine answer at once as sessions with a context of their own do.
static void sessions(const siskin_engine *engine, const siskin_model *model, const answer *expected) {
    siskin_session_options *options = greedy_options(MAX_TOKENS);
    chat chats[CLIENTS];
    pthread_t threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        chats[i].prompt = PROMPTS[i];
        OK(siskin_engine_session_new(engine, 0, options, &chats[i].session));
    }
    for (int i = 0; i < CLIENTS; i++) CHECK(pthread_create(&threads[i], NULL, say, &chats[i]) == 0);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(same(&chats[i].answer, &expected[i]));
    }
    siskin_session *fork = NULL;
    OK(siskin_session_fork(chats[0].session, &fork));
    siskin_session *surplus = NULL;
    FAILS(SISKIN_ERROR_OVERLOADED, siskin_engine_session_new(engine, 0, options, &surplus));
    for (int i = 0; i < CLIENTS; i++) siskin_session_free(chats[i].session);
    OK(siskin_session_cancel(fork));
    FAILS(SISKIN_ERROR_CANCELED, siskin_session_prompt(fork, TEXT(PROMPTS[1])));
    OK(siskin_session_prompt(fork, TEXT(PROMPTS[1])));
    siskin_session_free(fork);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_session_new(engine, 7, options, &fork));
    siskin_session_options_free(options);

    siskin_model *attached = NULL;
    OK(siskin_engine_attach_model(engine, model, &attached));
    answer answer;
    siskin_session *session = greedy(attached, MAX_TOKENS);
    siskin_model_free(attached);
    OK(siskin_session_prompt(session, TEXT(PROMPTS[0])));
    answer.count = take_answer(session, answer.text, ROOM, answer.ids);
    CHECK(same(&answer, &expected[0]));
    siskin_session_free(session);
}

static void options(const siskin_engine *engine) {
    siskin_request_options *options = greedy_request();
    siskin_generation *generation = NULL;
    answer answer;
    OK(siskin_request_options_set_priority(options, SISKIN_PRIORITY_INTERACTIVE));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_request_options_set_priority(options, (siskin_priority)9));
    OK(siskin_request_options_set_speculation(options, SISKIN_SPECULATION_NGRAM));
    OK(siskin_request_options_set_client(options, 7));
    OK(siskin_request_options_set_cache_salt(options, TEXT("of another user")));
    OK(siskin_engine_submit(engine, 0, TEXT(PROMPTS[0]), options, &generation));
    siskin_generation_usage usage = {.struct_size = sizeof usage};
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    finish(generation, &chunk);
    OK(siskin_generation_read_usage(generation, &usage));
    CHECK(usage.cached_tokens == 0);
    siskin_generation_free(generation);

    // More tokens than can be generated in the time.
    OK(siskin_request_options_set_timeout(options, 1));
    OK(siskin_request_options_set_max_tokens(options, 0));
    siskin_error *error = siskin_engine_submit_raw(engine, 0, TEXT("For ever"), false, options, &generation);
    if (error == NULL) {
        finish(generation, &chunk);
        CHECK(chunk.finish_reason == SISKIN_FINISH_REASON_TIMEOUT);
        siskin_generation_free(generation);
    } else {
        // It would have to wait for longer.
        FAILS(SISKIN_ERROR_OVERLOADED, error);
    }
    OK(siskin_request_options_set_timeout(options, 0));
    OK(siskin_request_options_set_max_tokens(options, MAX_TOKENS));

    siskin_generation *none = NULL;
    OK(siskin_request_options_set_speculation(options, SISKIN_SPECULATION_DRAFT));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_submit(engine, 0, TEXT(PROMPTS[0]), options, &none));
    OK(siskin_request_options_set_speculation(options, SISKIN_SPECULATION_OFF));
    OK(siskin_request_options_set_adapter(options, TEXT("unknown")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_submit(engine, 0, TEXT(PROMPTS[0]), options, &none));
    OK(siskin_request_options_set_adapter(options, TEXT("")));
    OK(siskin_request_options_add_stop_string(options, TEXT("\xf0\x9f\x98\x81\xf0\x9f\x98\x81")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_request_options_add_stop_string(options, TEXT("")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_submit(engine, 3, TEXT(PROMPTS[0]), options, &none));
    FAILS(SISKIN_ERROR_UTF8, siskin_engine_submit(engine, 0, "\xff", 1, options, &none));
    FAILS(SISKIN_ERROR_NULL, siskin_engine_submit(engine, 0, NULL, 4, options, &none));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_submit_messages(engine, 0, TEXT("[{}]"), options, &none));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_submit_tokens(engine, 0, NULL, 0, options, &none));
    CHECK(none == NULL);
    OK(siskin_engine_submit(engine, 0, TEXT(PROMPTS[0]), options, &generation));
    take(generation, &answer);
    CHECK(answer.count > 0);
    siskin_request_options_free(options);
}

// A request with an adapter gets the answer of a session with it.
static void adapters(char **arguments) {
    char path[ROOM], text[ROOM];
    uint32_t ids[MAX_TOKENS];
    snprintf(path, sizeof path, "%s/adapter.siskin", arguments[1]);
    siskin_model_options *model_options = NULL;
    siskin_model *model = NULL;
    OK(siskin_model_options_new(&model_options));
    OK(siskin_model_options_add_adapter(model_options, TEXT("style"), TEXT(path), false));
    OK(siskin_model_open(TEXT(model_path(arguments, "chat")), model_options, &model));
    siskin_model_options_free(model_options);
    siskin_session_options *session_options = NULL;
    siskin_session *session = NULL;
    siskin_sampler *sampler = greedy_sampler();
    OK(siskin_session_options_new(&session_options));
    OK(siskin_session_options_set_sampler(session_options, sampler));
    OK(siskin_session_options_set_max_tokens(session_options, MAX_TOKENS));
    OK(siskin_session_options_set_adapter(session_options, TEXT("style")));
    OK(siskin_session_new(model, session_options, &session));
    siskin_session_options_free(session_options);
    siskin_sampler_free(sampler);
    OK(siskin_session_prompt(session, TEXT(PROMPTS[1])));
    size_t count = take_answer(session, text, ROOM, ids);
    siskin_session_free(session);

    siskin_engine *engine = new_engine(false);
    uint32_t number = 9;
    OK(siskin_engine_add_model(engine, model, NULL, &number));
    siskin_model_free(model);
    siskin_request_options *options = greedy_request();
    siskin_generation *plain = NULL, *adapted = NULL;
    answer answer;
    OK(siskin_engine_submit(engine, number, TEXT(PROMPTS[1]), options, &plain));
    OK(siskin_request_options_set_adapter(options, TEXT("style")));
    OK(siskin_engine_submit(engine, number, TEXT(PROMPTS[1]), options, &adapted));
    // The generations keep the engine.
    siskin_engine_free(engine);
    siskin_request_options_free(options);
    take(adapted, &answer);
    CHECK(answer.count == count && strcmp(answer.text, text) == 0);
    take(plain, &answer);
    CHECK(strcmp(answer.text, text) != 0);
}

// Two models, limits, and the end.
static void limits(const siskin_model *model, const siskin_model *encoder) {
    siskin_engine *engine = new_engine(true);
    siskin_served_model_options *options = NULL;
    OK(siskin_served_model_options_new(&options));
    OK(siskin_served_model_options_set_context(options, 64));
    OK(siskin_served_model_options_set_max_batch_tokens(options, 32));
    OK(siskin_served_model_options_set_kv_cache_type(options, SISKIN_KV_CACHE_F32));
    OK(siskin_served_model_options_set_kv_cache_memory(options, 1 << 20));
    OK(siskin_served_model_options_set_max_running(options, 1));
    OK(siskin_served_model_options_set_max_waiting(options, 1));
    OK(siskin_served_model_options_set_draft_model(options, model));
    uint32_t first = 9, second = 9, none = 9;
    OK(siskin_engine_add_model(engine, model, options, &first));
    OK(siskin_served_model_options_set_draft_model(options, NULL));
    OK(siskin_engine_add_model(engine, model, options, &second));
    CHECK(first == 0 && second == 1);
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_engine_add_model(engine, encoder, options, &none));
    FAILS(SISKIN_ERROR_NULL, siskin_engine_add_model(engine, NULL, options, &none));
    CHECK(none == 9);
    siskin_served_model_options_free(options);

    char longer[400];
    memset(longer, 'a', sizeof longer);
    siskin_generation *generations[64];
    siskin_generation *last = NULL;
    FAILS(SISKIN_ERROR_TOO_LONG, siskin_engine_submit_raw(engine, second, longer, sizeof longer, false, NULL, &last));
    siskin_error *error = NULL;
    int count = 0;
    for (; count < 64 && error == NULL; count++) {
        error = siskin_engine_submit_raw(engine, second, TEXT("So"), false, NULL, &generations[count]);
    }
    FAILS(SISKIN_ERROR_OVERLOADED, error);
    siskin_request_options *drafts = greedy_request();
    OK(siskin_request_options_set_speculation(drafts, SISKIN_SPECULATION_DRAFT));
    OK(siskin_engine_submit_raw(engine, first, TEXT("So"), false, drafts, &last));
    siskin_request_options_free(drafts);
    answer answer;
    take(last, &answer);
    CHECK(answer.count > 0);
    for (int i = 0; i < count - 1; i++) siskin_generation_free(generations[i]);
    OK(siskin_engine_drain(engine, 5000));
    FAILS(SISKIN_ERROR_OVERLOADED, siskin_engine_submit_raw(engine, first, TEXT("So"), false, NULL, &last));
    siskin_engine_free(engine);
}

// Models that do not fit into the budget are rejected; a removed one makes room, and its number is not used again.
static void memory_and_versions(const siskin_model *model) {
    siskin_engine_options *options = NULL;
    OK(siskin_engine_options_new(&options));
    siskin_served_model_options *model_options = NULL;
    OK(siskin_served_model_options_new(&model_options));
    OK(siskin_served_model_options_set_context(model_options, 128));
    // The first power of two that is enough for one model is not enough for two.
    siskin_engine *engine = NULL;
    siskin_error *error = NULL;
    uint32_t number = 9;
    for (uint64_t budget = 1024; engine == NULL; budget *= 2) {
        OK(siskin_engine_options_set_memory_budget(options, budget));
        OK(siskin_engine_new(options, &engine));
        error = siskin_engine_add_model(engine, model, model_options, &number);
        if (error == NULL) break;
        CHECK(siskin_error_code(error) == SISKIN_ERROR_MEMORY);
        siskin_error_free(error);
        siskin_engine_free(engine);
        engine = NULL;
    }
    siskin_engine_options_free(options);
    CHECK(number == 0);
    FAILS(SISKIN_ERROR_MEMORY, siskin_engine_add_model(engine, model, model_options, &number));
    siskin_generation *generation = NULL;
    siskin_request_options *request = greedy_request();
    static answer answers[2];
    OK(siskin_engine_submit_raw(engine, 0, TEXT("So"), false, request, &generation));
    take(generation, &answers[0]);
    OK(siskin_engine_trim(engine));
    siskin_engine_stats stats = {.struct_size = sizeof stats};
    OK(siskin_engine_read_stats(engine, 0, &stats));
    CHECK(stats.cached_prefixes == 0 && stats.kv_blocks > 0 && stats.free_kv_blocks == stats.kv_blocks);
    OK(siskin_engine_remove_model(engine, 0, 1000));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_remove_model(engine, 0, 1000));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_engine_submit_raw(engine, 0, TEXT("So"), false, request, &generation));
    OK(siskin_engine_add_model(engine, model, model_options, &number));
    CHECK(number == 1);
    OK(siskin_engine_submit_raw(engine, 1, TEXT("So"), false, request, &generation));
    take(generation, &answers[1]);
    CHECK(same(&answers[0], &answers[1]));
    siskin_request_options_free(request);
    siskin_served_model_options_free(model_options);
    siskin_engine_free(engine);
}

// A later engine continues after the prefixes that one left on disk.
static void prefixes_on_disk(const siskin_model *model, const char *folder) {
    char directory[ROOM], prompt[100];
    CHECK(snprintf(directory, sizeof directory, "%s/prefixes-%d", folder, (int)getpid()) < ROOM);
    memset(prompt, 'a', sizeof prompt);
    siskin_served_model_options *options = NULL;
    OK(siskin_served_model_options_new(&options));
    OK(siskin_served_model_options_set_prefix_cache_directory(options, TEXT(directory)));
    OK(siskin_served_model_options_set_prefix_cache_directory_size(options, 1 << 30));
    siskin_request_options *request = greedy_request();
    static answer answers[2];
    for (int i = 0; i < 2; i++) {
        siskin_engine *engine = new_engine(false);
        siskin_generation *generation = NULL;
        siskin_generation_usage usage = {.struct_size = sizeof usage};
        siskin_text_chunk chunk = {.struct_size = sizeof chunk};
        OK(siskin_engine_add_model(engine, model, options, &(uint32_t){0}));
        OK(siskin_engine_submit_raw(engine, 0, prompt, sizeof prompt, false, request, &generation));
        finish(generation, &chunk);
        OK(siskin_generation_read_usage(generation, &usage));
        CHECK(i == 0 ? usage.cached_tokens == 0 : usage.cached_tokens >= 64);
        siskin_generation_free(generation);
        OK(siskin_engine_submit_raw(engine, 0, prompt, sizeof prompt, false, request, &generation));
        take(generation, &answers[i]);
        OK(siskin_engine_drain(engine, 5000));
        siskin_engine_free(engine);
    }
    CHECK(same(&answers[0], &answers[1]));
    siskin_request_options_free(request);
    OK(siskin_served_model_options_set_prefix_cache_directory(options, TEXT("/dev/null/none")));
    siskin_engine *engine = new_engine(false);
    FAILS(SISKIN_ERROR_IO, siskin_engine_add_model(engine, model, options, &(uint32_t){0}));
    siskin_engine_free(engine);
    siskin_served_model_options_free(options);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    siskin_model *model = open_model(arguments, "chat"), *encoder = open_model(arguments, "vectors");
    static answer expected[CLIENTS];
    expect(model, expected);
    for (int background_thread = 0; background_thread < 2; background_thread++) {
        siskin_engine *engine = new_engine(background_thread);
        uint32_t number = 9;
        siskin_served_model_options *served = NULL;
        OK(siskin_served_model_options_new(&served));
        OK(siskin_served_model_options_set_max_sessions(served, CLIENTS + 1));
        OK(siskin_engine_add_model(engine, model, served, &number));
        siskin_served_model_options_free(served);
        CHECK(number == 0);
        concurrent(engine, expected);
        prompts(engine, model, expected);
        options(engine);
        sessions(engine, model, expected);
        siskin_engine_free(engine);
    }
    adapters(arguments);
    limits(model, encoder);
    memory_and_versions(model);
    prefixes_on_disk(model, arguments[1]);
    siskin_model_free(encoder);
    siskin_model_free(model);
    puts("engine: ok");
    return 0;
}
