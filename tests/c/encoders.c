// Encoders and seq2seq: every encoder task, and generation.
#include "check.h"
#include <math.h>

static siskin_strings *texts_of(const char *first, const char *second) {
    siskin_strings *texts = NULL;
    size_t count = 0;
    OK(siskin_strings_new(&texts));
    OK(siskin_strings_add(texts, TEXT(first)));
    if (second != NULL) OK(siskin_strings_add(texts, TEXT(second)));
    OK(siskin_strings_count(texts, &count));
    CHECK(count == (second == NULL ? 1u : 2u));
    return texts;
}

static siskin_encoder *open_encoder(char **arguments, const char *name, bool use_head) {
    siskin_model *model = open_model(arguments, name);
    siskin_encoder *encoder = NULL;
    OK(siskin_encoder_new(model, use_head, 64, SISKIN_KV_CACHE_AUTO, &encoder));
    siskin_model_free(model);
    return encoder;
}

static siskin_encoder *encoder_of_engine(char **arguments, const char *name, bool use_head) {
    siskin_model *model = open_model(arguments, name);
    siskin_engine *engine = NULL;
    siskin_encoder *encoder = NULL;
    OK(siskin_engine_new(NULL, &engine));
    OK(siskin_engine_encoder_new(engine, model, use_head, 64, SISKIN_KV_CACHE_AUTO, &encoder));
    siskin_encoder *none = NULL;
    FAILS(SISKIN_ERROR_NULL, siskin_engine_encoder_new(engine, NULL, use_head, 0, SISKIN_KV_CACHE_AUTO, &none));
    siskin_model_free(model);
    siskin_engine_free(engine);
    return encoder;
}

static void embeddings(siskin_encoder *encoder) {
    siskin_strings *both = texts_of("the sky is blue", "a"), *alone = texts_of("the sky is blue", NULL);
    const float *values = NULL;
    float kept[64];
    size_t count = 0;
    OK(siskin_encoder_embed(encoder, both));
    OK(siskin_encoder_embedding(encoder, 0, &values, &count));
    CHECK(count == 32);
    memcpy(kept, values, count * sizeof *kept);
    float length = 0;
    for (size_t i = 0; i < count; i++) length += values[i] * values[i];
    CHECK(fabsf(length - 1) < 1e-4f);
    // The embedding of a text is bit-identical in every batch.
    OK(siskin_encoder_embed(encoder, alone));
    OK(siskin_encoder_embedding(encoder, 0, &values, &count));
    CHECK(memcmp(kept, values, count * sizeof *kept) == 0);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_embedding(encoder, 1, &values, &count));
    OK(siskin_encoder_set_pooling(encoder, SISKIN_POOLING_FIRST, false, 8));
    OK(siskin_encoder_embed(encoder, alone));
    OK(siskin_encoder_embedding(encoder, 0, &values, &count));
    CHECK(count == 8);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_pooling(encoder, (siskin_pooling)99, true, 0));
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_classify(encoder, alone));
    OK(siskin_strings_clear(alone));
    OK(siskin_encoder_embed(encoder, alone));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_embedding(encoder, 0, &values, &count));
    // A cancel before a call ends that call only.
    OK(siskin_encoder_cancel(encoder));
    FAILS(SISKIN_ERROR_CANCELED, siskin_encoder_embed(encoder, both));
    OK(siskin_encoder_embed(encoder, both));
    siskin_strings_free(both);
    siskin_strings_free(alone);
    siskin_encoder_free(encoder);
}

static void classes(char **arguments) {
    siskin_encoder *encoder = open_encoder(arguments, "classes", true);
    siskin_strings *texts = texts_of("good", "bad");
    siskin_prediction prediction = {.struct_size = sizeof prediction};
    size_t count = 0;
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_prediction_count(encoder, 1, &count));
    float all = 0, last = 1;
    for (size_t rank = 0; rank < count; rank++) {
        OK(siskin_encoder_prediction(encoder, 1, rank, &prediction));
        CHECK(prediction.length > 0 && is_utf8(prediction.text, prediction.length) && prediction.score <= last);
        last = prediction.score;
        all += prediction.score;
    }
    CHECK(count > 1 && fabsf(all - 1) < 1e-4f);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_prediction(encoder, 1, count, &prediction));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_prediction_count(encoder, 2, &count));
    OK(siskin_encoder_rerank(encoder, TEXT("how is it"), texts));
    OK(siskin_encoder_prediction(encoder, 1, 0, &prediction));
    CHECK(isfinite(prediction.score) && prediction.length == 0);
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_tag(encoder, texts));
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_answer(encoder, TEXT("who"), texts));
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_fill_mask(encoder, TEXT("a [MASK]"), 3));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_overflow(encoder, (siskin_overflow_mode)99, 0));
    // Longer than the maximum length of the model.
    char text[4000];
    memset(text, 'a', sizeof text);
    for (size_t i = 1; i < sizeof text; i += 2) text[i] = ' ';
    siskin_strings *far = NULL;
    OK(siskin_strings_new(&far));
    OK(siskin_strings_add(far, text, sizeof text));
    FAILS(SISKIN_ERROR_TOO_LONG, siskin_encoder_classify(encoder, far));
    OK(siskin_encoder_set_overflow(encoder, SISKIN_OVERFLOW_TRUNCATE, 0));
    OK(siskin_encoder_classify(encoder, far));
    siskin_strings_free(far);
    siskin_strings_free(texts);
    siskin_encoder_free(encoder);
}

static void early_exit(char **arguments) {
    siskin_encoder *encoder = open_encoder(arguments, "exits", true);
    siskin_strings *texts = texts_of("good", "bad and long");
    siskin_prediction whole = {.struct_size = sizeof whole}, prediction = whole;
    size_t all = 0, layers = 0;
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_prediction(encoder, 1, 0, &whole));
    float score = whole.score;
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_layers(encoder, 0, &layers));
    OK(siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_PATIENCE, 100));
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_layers(encoder, 1, &all));
    OK(siskin_encoder_prediction(encoder, 1, 0, &prediction));
    CHECK(all > 2 && prediction.score == score);
    OK(siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_PATIENCE, 1));
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_layers(encoder, 0, &layers));
    CHECK(layers >= 2 && layers <= all);
    OK(siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_CONFIDENCE, 0));
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_layers(encoder, 1, &layers));
    CHECK(layers == 1);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_layers(encoder, 2, &layers));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_CONFIDENCE, 2));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_PATIENCE, 0));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_early_exit(encoder, (siskin_exit_criterion)99, 1));
    OK(siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_ENTROPY, 0));
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_layers(encoder, 1, &layers));
    CHECK(layers == all);
    OK(siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_NEVER, 0));
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_prediction(encoder, 1, 0, &prediction));
    CHECK(prediction.score == score);
    siskin_encoder_free(encoder);
    encoder = open_encoder(arguments, "classes", true);
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_set_early_exit(encoder, SISKIN_EXIT_PATIENCE, 1));
    siskin_strings_free(texts);
    siskin_encoder_free(encoder);
}

static void spans(char **arguments) {
    const char *text = "anna lives in rome";
    siskin_encoder *encoder = open_encoder(arguments, "labels", true);
    siskin_strings *texts = texts_of(text, NULL);
    siskin_prediction prediction = {.struct_size = sizeof prediction};
    size_t count = 0;
    OK(siskin_encoder_tag(encoder, texts));
    OK(siskin_encoder_prediction_count(encoder, 0, &count));
    for (size_t rank = 0; rank < count; rank++) {
        OK(siskin_encoder_prediction(encoder, 0, rank, &prediction));
        CHECK(prediction.start < prediction.end && prediction.end <= strlen(text));
    }
    siskin_encoder_free(encoder);
    encoder = open_encoder(arguments, "answers", true);
    OK(siskin_encoder_answer(encoder, TEXT("where does anna live"), texts));
    OK(siskin_encoder_prediction(encoder, 0, 0, &prediction));
    CHECK(prediction.end - prediction.start == prediction.length && prediction.length > 0 && prediction.score > 0);
    CHECK(memcmp(text + prediction.start, prediction.text, prediction.length) == 0);
    siskin_strings_free(texts);
    siskin_encoder_free(encoder);
}

static void masks(char **arguments) {
    siskin_encoder *encoder = open_encoder(arguments, "vectors", true);
    siskin_prediction prediction = {.struct_size = sizeof prediction};
    size_t count = 0, results = 7;
    OK(siskin_encoder_result_count(encoder, &results));
    CHECK(results == 0);
    OK(siskin_encoder_fill_mask(encoder, TEXT("the [MASK] is [MASK]"), 3));
    OK(siskin_encoder_result_count(encoder, &results));
    CHECK(results == 2);
    for (size_t mask = 0; mask < results; mask++) {
        float before = 1;
        OK(siskin_encoder_prediction_count(encoder, mask, &count));
        CHECK(count == 3);
        for (size_t rank = 0; rank < count; rank++) {
            OK(siskin_encoder_prediction(encoder, mask, rank, &prediction));
            CHECK(prediction.score > 0 && prediction.score <= before && prediction.token != UINT32_MAX && prediction.length > 0);
            before = prediction.score;
        }
    }
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_prediction_count(encoder, 2, &count));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_fill_mask(encoder, TEXT("nothing is hidden"), 3));
    siskin_encoder_free(encoder);
}

static void generation(char **arguments) {
    siskin_model *model = open_model(arguments, "translates");
    siskin_seq2seq *seq2seq = NULL;
    siskin_seq2seq_options *options = NULL;
    siskin_strings *texts = texts_of("good morning", "a");
    siskin_generated_text generated = {.struct_size = sizeof generated};
    size_t count = 0;
    OK(siskin_seq2seq_new(model, 8, 64, &seq2seq));
    OK(siskin_seq2seq_options_new_translation(model, NULL, 0, TEXT(""), &options));
    OK(siskin_seq2seq_options_set(options, SISKIN_SEQ2SEQ_BEAMS, 3));
    OK(siskin_seq2seq_options_set(options, SISKIN_SEQ2SEQ_N_BEST, 2));
    OK(siskin_seq2seq_options_set(options, SISKIN_SEQ2SEQ_MAX_TOKENS, 8));
    OK(siskin_seq2seq_options_set_overflow(options, SISKIN_OVERFLOW_TRUNCATE, 0));
    OK(siskin_seq2seq_options_set_prefix(options, TEXT("")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_seq2seq_options_set(options, (siskin_seq2seq_option)99, 1));
    OK(siskin_seq2seq_generate(seq2seq, texts, options));
    for (size_t index = 0; index < 2; index++) {
        OK(siskin_seq2seq_text_count(seq2seq, index, &count));
        CHECK(count == 2);
        double before = INFINITY;
        for (size_t rank = 0; rank < count; rank++) {
            OK(siskin_seq2seq_text(seq2seq, index, rank, &generated));
            CHECK(is_utf8(generated.text, generated.length) && generated.token_count <= 9 && generated.score <= before);
            CHECK(generated.finish_reason == SISKIN_FINISH_REASON_EOS ||
                  generated.finish_reason == SISKIN_FINISH_REASON_LENGTH);
            before = generated.score;
        }
    }
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_seq2seq_text(seq2seq, 2, 0, &generated));
    OK(siskin_seq2seq_cancel(seq2seq));
    FAILS(SISKIN_ERROR_CANCELED, siskin_seq2seq_generate(seq2seq, texts, options));
    OK(siskin_seq2seq_generate(seq2seq, texts, NULL));
    siskin_seq2seq_options_free(options);
    OK(siskin_seq2seq_options_new(model, &options));
    siskin_seq2seq_options_free(options);
    OK(siskin_seq2seq_options_new_summary(model, &options));
    siskin_seq2seq_options_free(options);
    siskin_transcriber *transcriber = NULL;
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_transcriber_new(model, &transcriber));
    siskin_strings_free(texts);
    siskin_seq2seq_free(seq2seq);
    siskin_model_free(model);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    embeddings(open_encoder(arguments, "vectors", false));
    embeddings(encoder_of_engine(arguments, "vectors", false));
    classes(arguments);
    early_exit(arguments);
    spans(arguments);
    masks(arguments);
    generation(arguments);
    puts("encoders: ok");
    return 0;
}
