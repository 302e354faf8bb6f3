// Sessions: prompts of every kind, streaming, saving, rewinding, plans and budgets.
#include "check.h"

enum { MAX_TOKENS = 24, ROOM = 4096 };

static void prompts(const siskin_model *model) {
    char text[ROOM] = "", again[ROOM] = "";
    uint32_t ids[MAX_TOKENS], others[MAX_TOKENS];
    siskin_session *session = greedy(model, MAX_TOKENS);
    OK(siskin_session_add_message(session, TEXT("system"), TEXT("Be brief.")));
    OK(siskin_session_prompt(session, TEXT("Why is the sky blue? \xf0\x9f\x98\x80")));
    size_t count = take_answer(session, text, ROOM, ids);
    CHECK(count > 0 && count <= MAX_TOKENS);
    // Calls after the end report the end again.
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    OK(siskin_session_next(session, &chunk));
    CHECK(chunk.done && !chunk.has_token);
    siskin_stats stats = {.struct_size = sizeof stats};
    OK(siskin_session_stats(session, &stats));
    CHECK(stats.generated_tokens == count && stats.prompt_tokens > 0 && stats.position > 0);
    siskin_session_free(session);

    session = greedy(model, MAX_TOKENS);
    const char *json = "[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                       "{\"role\":\"user\",\"content\":\"Why is the sky blue? \\ud83d\\ude00\"}]";
    OK(siskin_session_prompt_messages(session, TEXT(json)));
    CHECK(take_answer(session, again, ROOM, others) == count);
    CHECK(strcmp(text, again) == 0 && memcmp(ids, others, count * sizeof *ids) == 0);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_prompt_messages(session, TEXT("[{\"role\":\"user\"}]")));
    FAILS(SISKIN_ERROR_ARGUMENT,
          siskin_session_prompt_messages(session, TEXT("[{\"role\":\"u\",\"content\":\"\",\"audio\":\"x\"}]")));
    FAILS(SISKIN_ERROR_UTF8, siskin_session_prompt(session, "\xff", 1));
    siskin_session_free(session);
}

// Continuing from token ids gives the same result as continuing from the text that they encode.
static void tokens(const siskin_model *model) {
    char text[ROOM] = "", again[ROOM] = "";
    uint32_t ids[MAX_TOKENS], others[MAX_TOKENS], prompt[64];
    size_t count = 0;
    OK(siskin_model_tokenize(model, TEXT("Once upon"), true, NULL, 0, &count));
    CHECK(count > 0 && count <= 64);
    size_t same = 0;
    OK(siskin_model_tokenize(model, "Once upon a time", strlen("Once upon"), true, NULL, 0, &same));
    CHECK(same == count);
    FAILS(SISKIN_ERROR_NULL, siskin_model_tokenize(model, TEXT(NULL), true, NULL, 0, &same));
    OK(siskin_model_tokenize(model, TEXT("Once upon"), true, prompt, 64, &same));
    CHECK(same == count);
    siskin_session *session = greedy(model, 8);
    OK(siskin_session_prompt_raw(session, TEXT("Once upon"), false));
    size_t written = take_answer(session, text, ROOM, ids);
    OK(siskin_session_reset(session));
    OK(siskin_session_prompt_tokens(session, prompt, count));
    CHECK(take_answer(session, again, ROOM, others) == written && strcmp(text, again) == 0);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_prompt_tokens(session, &(uint32_t){4000000000u}, 1));
    siskin_session_free(session);
}

// Forks continue alike, and texts are scored as their tokens are generated.
static void forks(const siskin_model *model) {
    char text[ROOM] = "", again[ROOM] = "";
    uint32_t ids[MAX_TOKENS], others[MAX_TOKENS];
    siskin_sampler *sampler = greedy_sampler();
    siskin_session_options *options = NULL;
    siskin_session *session = NULL, *fork = NULL, *none = NULL;
    OK(siskin_sampler_set(sampler, SISKIN_SAMPLER_LOG_PROBABILITIES, 1));
    OK(siskin_session_options_new(&options));
    OK(siskin_session_options_set_sampler(options, sampler));
    OK(siskin_session_options_set_max_tokens(options, 8));
    OK(siskin_session_options_set_forks(options, 1));
    OK(siskin_session_options_set_template_variables(options, TEXT("{\"style\": \"brief\"}")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_options_set_template_variables(options, TEXT("[]")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_options_set_template_variables(options, TEXT("{\"messages\": 1}")));
    OK(siskin_session_new(model, options, &session));
    siskin_session_options_free(options);
    siskin_sampler_free(sampler);
    OK(siskin_session_prompt_raw(session, TEXT("Once upon"), false));
    OK(siskin_session_fork(session, &fork));
    FAILS(SISKIN_ERROR_NULL, siskin_session_fork(NULL, &none));
    CHECK(none == NULL);
    double expected = 0;
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    size_t count = 0, length = 0;
    for (;;) {
        OK(siskin_session_next(session, &chunk));
        if (chunk.done) break;
        memcpy(text + length, chunk.text, chunk.length + 1);
        length += chunk.length;
        if (chunk.has_token) {
            expected += chunk.log_probability;
            ids[count++] = chunk.token;
        }
    }
    siskin_session_free(session);
    OK(siskin_session_prompt_tokens(fork, NULL, 0));
    CHECK(take_answer(fork, again, ROOM, others) == count && memcmp(ids, others, count * sizeof *ids) == 0);
    OK(siskin_session_reset(fork));
    OK(siskin_session_prompt_raw(fork, TEXT("Once upon"), false));
    uint32_t encoded[MAX_TOKENS];
    size_t encoded_count = 0;
    OK(siskin_model_tokenize(model, text, length, false, encoded, MAX_TOKENS, &encoded_count));
    if (encoded_count == count && memcmp(encoded, ids, count * sizeof *ids) == 0) {
        double score = 1;
        size_t scored = 0;
        OK(siskin_session_score_text(fork, text, length, false, &score, &scored));
        CHECK(scored == count && score <= 0 && score - expected < 1e-3 && expected - score < 1e-3);
    }
    double first = 1, whole = 1;
    size_t of_first = 0, of_whole = 0;
    OK(siskin_session_reset(fork));
    OK(siskin_session_score_text(fork, TEXT("Once upon"), false, &first, &of_first));
    OK(siskin_session_score_text(fork, TEXT(" a time"), false, &whole, &of_whole));
    CHECK(first < 0 && whole < 0 && of_whole == strlen(" a time"));
    FAILS(SISKIN_ERROR_NULL, siskin_session_score_text(fork, TEXT("x"), false, NULL, &of_whole));
    siskin_session_free(fork);
}

// After saving and restoring, generation continues identically.
static void saving(char **arguments, const siskin_model *model) {
    char whole[ROOM] = "", rest[ROOM] = "", path[ROOM];
    uint32_t ids[MAX_TOKENS], others[MAX_TOKENS];
    siskin_session *first = greedy(model, 6);
    OK(siskin_session_prompt_raw(first, TEXT("A long story"), false));
    take_answer(first, whole, ROOM, ids);
    const uint8_t *bytes = NULL;
    size_t length = 0;
    OK(siskin_session_save_to_memory(first, &bytes, &length));
    CHECK(length > 100);
    siskin_session *second = greedy(model, 6), *third = greedy(model, 6);
    OK(siskin_session_restore_from_memory(second, bytes, length));
    FAILS(SISKIN_ERROR_CORRUPT, siskin_session_restore_from_memory(second, bytes, 5));
    snprintf(path, sizeof path, "%s/session.saved", arguments[1]);
    OK(siskin_session_save(first, TEXT(path)));
    OK(siskin_session_restore(third, TEXT(path)));
    OK(siskin_session_prompt_raw(first, TEXT(" and"), false));
    size_t count = take_answer(first, whole, ROOM, ids);
    siskin_session *restored[] = {second, third};
    for (int i = 0; i < 2; i++) {
        OK(siskin_session_prompt_raw(restored[i], TEXT(" and"), false));
        CHECK(take_answer(restored[i], rest, ROOM, others) == count && strcmp(whole, rest) == 0);
    }
    FAILS(SISKIN_ERROR_IO, siskin_session_restore(third, TEXT("/nowhere/at/all")));
    siskin_session_free(third);
    siskin_session_free(second);
    siskin_session_free(first);
}

static void going_back(const siskin_model *model) {
    siskin_session *session = greedy(model, 4);
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    FAILS(SISKIN_ERROR_STATE, siskin_session_next(session, &chunk));
    OK(siskin_session_prompt_raw(session, TEXT("abcdef"), false));
    OK(siskin_session_next(session, &chunk));
    OK(siskin_session_rewind(session, 3));
    siskin_stats stats = {.struct_size = sizeof stats};
    OK(siskin_session_stats(session, &stats));
    CHECK(stats.position == 3);
    FAILS(SISKIN_ERROR_STATE, siskin_session_next(session, &chunk));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_rewind(session, 1000));
    const float *logits = NULL;
    size_t count = 0;
    OK(siskin_session_logits(session, &logits, &count));
    CHECK(count == 256 && logits[0] == logits[0]);
    OK(siskin_session_trim(session, SISKIN_TRIM_UNUSED));
    OK(siskin_session_trim(session, SISKIN_TRIM_ALL));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_trim(session, (siskin_trim_level)77));
    OK(siskin_session_stats(session, &stats));
    CHECK(stats.position == 0);
    siskin_session_free(session);
}

// Throttling changes timing, not results.
static void throttling(const siskin_model *model) {
    char free_text[ROOM] = "", held_text[ROOM] = "";
    uint32_t ids[MAX_TOKENS], others[MAX_TOKENS];
    siskin_session *session = greedy(model, 8);
    OK(siskin_session_prompt(session, TEXT("hello")));
    size_t count = take_answer(session, free_text, ROOM, ids);
    siskin_session_free(session);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_set_throttle(model, (siskin_throttle_mode)77, 1));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_set_throttle(model, SISKIN_THROTTLE_DUTY_CYCLE, 0));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_set_thermal_state(model, 7));
    OK(siskin_model_set_thermal_state(model, 2));
    OK(siskin_model_set_power_state(model, false, true, -1));
    OK(siskin_model_set_throttle(model, SISKIN_THROTTLE_BACKGROUND, 0));
    session = greedy(model, 8);
    OK(siskin_session_prompt(session, TEXT("hello")));
    CHECK(take_answer(session, held_text, ROOM, others) == count && strcmp(free_text, held_text) == 0);
    siskin_session_free(session);
    siskin_throttle_stats stats = {.struct_size = sizeof stats};
    OK(siskin_model_throttle_stats(model, &stats));
    CHECK(stats.threads == 1 && stats.duty_cycle == 0.25f && stats.passes > 0 && stats.wait_nanoseconds > 0);
    OK(siskin_model_set_throttle(model, SISKIN_THROTTLE_OFF, 0));
}

static void memory(const siskin_model *model) {
    siskin_session_options *options = NULL;
    siskin_session *session = NULL;
    siskin_memory_usage plan = {.struct_size = sizeof plan}, held = {.struct_size = sizeof held};
    OK(siskin_session_options_new(&options));
    OK(siskin_session_options_set_context(options, 128));
    OK(siskin_session_options_set_max_batch_tokens(options, 32));
    OK(siskin_session_options_set_kv_cache_type(options, SISKIN_KV_CACHE_F16));
    OK(siskin_model_session_memory(model, options, &plan));
    CHECK(plan.activations > 0 && plan.kv_cache > 0 && plan.mapped_file > 0);
    OK(siskin_session_options_set_memory_budget(options, plan.activations + plan.kv_cache - 1));
    FAILS(SISKIN_ERROR_MEMORY, siskin_session_new(model, options, &session));
    CHECK(session == NULL);
    OK(siskin_session_options_set_memory_budget(options, plan.activations + plan.kv_cache));
    OK(siskin_session_new(model, options, &session));
    OK(siskin_session_memory(session, &held));
    CHECK(held.activations == plan.activations && held.kv_cache == plan.kv_cache);
    CHECK(held.mapped_file == plan.mapped_file);
    // Older programs pass smaller structs, newer ones larger structs.
    struct { siskin_memory_usage known; uint64_t later; } newer = {.known = {.struct_size = sizeof newer}, .later = 7};
    OK(siskin_session_memory(session, &newer.known));
    CHECK(newer.known.mapped_file == plan.mapped_file && newer.later == 7);
    siskin_memory_usage older = {.struct_size = offsetof(siskin_memory_usage, kv_cache), .kv_cache = 5};
    OK(siskin_session_memory(session, &older));
    CHECK(older.activations == plan.activations && older.kv_cache == 5);
    FAILS(SISKIN_ERROR_STRUCT_SIZE, siskin_session_memory(session, &(siskin_memory_usage){0}));
    siskin_session_free(session);
    siskin_session_options_free(options);
}

static void choices(const siskin_model *model) {
    siskin_sampler *sampler = NULL;
    siskin_session_options *options = NULL;
    siskin_session *session = NULL;
    OK(siskin_sampler_new(&sampler));
    OK(siskin_sampler_set_seed(sampler, 7));
    OK(siskin_sampler_set(sampler, SISKIN_SAMPLER_TOP_LOG_PROBABILITIES, 5));
    OK(siskin_sampler_add_bias(sampler, 0, -1.0f / 0.0f));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_sampler_set(sampler, SISKIN_SAMPLER_TOP_P, 2));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_sampler_set(sampler, SISKIN_SAMPLER_TOP_K, 0.5));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_sampler_set(sampler, (siskin_sampler_option)4711, 1));
    OK(siskin_session_options_new(&options));
    OK(siskin_session_options_set_sampler(options, sampler));
    OK(siskin_session_options_set_window(options, 40, 4));
    OK(siskin_session_options_add_stop_string(options, TEXT("\n\nUser:")));
    OK(siskin_session_new(model, options, &session));
    OK(siskin_session_set_max_tokens(session, 3));
    OK(siskin_session_prompt_raw(session, TEXT("x"), false));
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    for (int i = 0; i < 3; i++) {
        OK(siskin_session_next(session, &chunk));
        CHECK(chunk.has_token && chunk.token != 0 && chunk.byte_count == 1 && chunk.top_count == 5);
        CHECK(chunk.log_probability <= 0 && chunk.top[0].log_probability >= chunk.top[4].log_probability);
    }
    while (!chunk.done) OK(siskin_session_next(session, &chunk));
    CHECK(chunk.finish_reason == SISKIN_FINISH_REASON_LENGTH);
    siskin_session_free(session);
    siskin_session_options_free(options);
    siskin_sampler_free(sampler);
}

// A response is one of the choices, and structured output that the library lacks is an error.
static void structured_output(const siskin_model *model) {
    siskin_session *session = NULL;
    char answer[ROOM] = "";
    OK(siskin_session_new(model, NULL, &session));
    OK(siskin_session_set_structured_output(session, SISKIN_STRUCTURED_OUTPUT_CHOICE, TEXT("[\"yes\", \"no\"]")));
    OK(siskin_session_prompt_raw(session, TEXT("Well?"), false));
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    while (!chunk.done) {
        OK(siskin_session_next(session, &chunk));
        strncat(answer, chunk.text, ROOM - 1 - strlen(answer));
    }
    CHECK(strcmp(answer, "yes") == 0 || strcmp(answer, "no") == 0);
    CHECK(chunk.finish_reason == SISKIN_FINISH_REASON_EOS);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_set_structured_output(session, SISKIN_STRUCTURED_OUTPUT_CHOICE, TEXT("yes")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_set_structured_output(session, 99, TEXT("")));
    FAILS(SISKIN_ERROR_NULL, siskin_session_set_structured_output(session, SISKIN_STRUCTURED_OUTPUT_REGEX, NULL, 1));
    OK(siskin_session_set_structured_output(session, SISKIN_STRUCTURED_OUTPUT_NONE, NULL, 0));
    siskin_session_free(session);
}

// The text of a chat is its content; its message has all of the response.
static void chat(const siskin_model *model) {
    static const char MESSAGES[] = "[{\"role\": \"user\", \"content\": \"Why?\"}]";
    static const char TOOLS[] =
        "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}], \"parallel_tool_calls\": false}";
    siskin_session *session = greedy(model, MAX_TOKENS);
    const char *message = NULL;
    size_t length = 0;
    char answer[ROOM] = "";
    FAILS(SISKIN_ERROR_STATE, siskin_session_message(session, &message, &length));
    OK(siskin_session_prompt_chat(session, TEXT(MESSAGES), TEXT("")));
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    while (!chunk.done) {
        OK(siskin_session_next(session, &chunk));
        CHECK(!chunk.done || chunk.length == 0);
        strncat(answer, chunk.text, ROOM - 1 - strlen(answer));
    }
    OK(siskin_session_message(session, &message, &length));
    CHECK(length == strlen(message) && strstr(message, "\"role\":\"assistant\"") != NULL);
    CHECK(strstr(message, "\"content\":\"") != NULL && answer[0] != 0);
    OK(siskin_session_prompt_chat(session, TEXT(MESSAGES), TEXT("{\"tool_choice\": \"none\"}")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_prompt_chat(session, TEXT(MESSAGES), TEXT("{\"tool\": []}")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_session_prompt_chat(session, TEXT("[{}]"), TEXT("")));
    FAILS(SISKIN_ERROR_NULL, siskin_session_message(session, NULL, &length));
    // The explanation of tools is longer than the context of this model.
    FAILS(SISKIN_ERROR_TOO_LONG, siskin_session_prompt_chat(session, TEXT(MESSAGES), TEXT(TOOLS)));
    siskin_session_free(session);
}

// An adapter changes the output, and is bound to its base model.
static void adapters(char **arguments, const siskin_model *plain) {
    char without[ROOM] = "", with[ROOM] = "";
    uint32_t ids[MAX_TOKENS], others[MAX_TOKENS];
    siskin_model *model = NULL;
    siskin_model_options *options = NULL;
    OK(siskin_model_options_new(&options));
    FAILS(SISKIN_ERROR_MISSING, siskin_model_options_set_adapter(options, TEXT(model_path(arguments, "chat")), false));
    OK(siskin_model_options_set_adapter(options, TEXT(model_path(arguments, "adapter")), false));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_open(TEXT(model_path(arguments, "vectors")), options, &model));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_model_open(TEXT(model_path(arguments, "adapter")), options, &model));
    OK(siskin_model_open(TEXT(model_path(arguments, "chat")), options, &model));
    siskin_session *session = greedy(plain, MAX_TOKENS);
    OK(siskin_session_prompt(session, TEXT("Why?")));
    size_t count = take_answer(session, without, ROOM, ids);
    siskin_session_free(session);
    session = greedy(model, MAX_TOKENS);
    OK(siskin_session_prompt(session, TEXT("Why?")));
    size_t other = take_answer(session, with, ROOM, others);
    CHECK(other != count || memcmp(ids, others, count * sizeof *ids) != 0);
    siskin_session_free(session);
    siskin_model_free(model);
    OK(siskin_model_options_set_adapter(options, TEXT(""), false));
    OK(siskin_model_open(TEXT(model_path(arguments, "vectors")), options, &model));
    siskin_model_free(model);
    siskin_model_options_free(options);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(siskin_abi_version() >= SISKIN_ABI_VERSION && strlen(siskin_version()) > 0);
    siskin_model *model = open_model(arguments, "chat");
    siskin_model_info info = {.struct_size = sizeof info};
    OK(siskin_model_describe(model, &info));
    CHECK(info.vocabulary_size == 256 && strncmp(info.family, "llama", info.family_length) == 0);
    CHECK(info.capabilities == (SISKIN_CAPABILITY_GENERATE | SISKIN_CAPABILITY_CHAT | SISKIN_CAPABILITY_TOKENIZE));
    OK(siskin_model_verify(model));
    prompts(model);
    tokens(model);
    structured_output(model);
    chat(model);
    adapters(arguments, model);
    forks(model);
    saving(arguments, model);
    throttling(model);
    going_back(model);
    memory(model);
    choices(model);
    siskin_model_free(model);
    puts("session: ok");
    return 0;
}
