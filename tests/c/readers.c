// Encoders and writers: every encoder task, and seq2seq generation.
#include "check.h"
#include <math.h>

static siskin_texts *texts_of(const char *first, const char *second) {
    siskin_texts *texts = NULL;
    size_t count = 0;
    OK(siskin_texts_new(&texts));
    OK(siskin_texts_add(texts, TEXT(first)));
    if (second != NULL) OK(siskin_texts_add(texts, TEXT(second)));
    OK(siskin_texts_count(texts, &count));
    CHECK(count == (second == NULL ? 1u : 2u));
    return texts;
}

static siskin_encoder *open_encoder(char **arguments, const char *name, bool head) {
    siskin_model *model = open_model(arguments, name);
    siskin_encoder *encoder = NULL;
    OK(siskin_encoder_new(model, head, 64, SISKIN_CACHE_TYPE_AUTO, &encoder));
    siskin_model_free(model);
    return encoder;
}

static void vectors(char **arguments) {
    siskin_encoder *encoder = open_encoder(arguments, "vectors", false);
    siskin_texts *both = texts_of("the sky is blue", "a"), *alone = texts_of("the sky is blue", NULL);
    const float *values = NULL;
    float kept[64];
    size_t count = 0;
    OK(siskin_encoder_embed(encoder, both));
    OK(siskin_encoder_vector(encoder, 0, &values, &count));
    CHECK(count == 32);
    memcpy(kept, values, count * sizeof *kept);
    float length = 0;
    for (size_t i = 0; i < count; i++) length += values[i] * values[i];
    CHECK(fabsf(length - 1) < 1e-4f);
    // The embedding of a text is bit-identical in every batch.
    OK(siskin_encoder_embed(encoder, alone));
    OK(siskin_encoder_vector(encoder, 0, &values, &count));
    CHECK(memcmp(kept, values, count * sizeof *kept) == 0);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_vector(encoder, 1, &values, &count));
    OK(siskin_encoder_set_pooling(encoder, SISKIN_POOLING_FIRST, false, 8));
    OK(siskin_encoder_embed(encoder, alone));
    OK(siskin_encoder_vector(encoder, 0, &values, &count));
    CHECK(count == 8);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_pooling(encoder, 99, true, 0));
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_classify(encoder, alone));
    OK(siskin_texts_clear(alone));
    OK(siskin_encoder_embed(encoder, alone));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_vector(encoder, 0, &values, &count));
    // A cancel before a call ends that call only.
    OK(siskin_encoder_stop(encoder));
    FAILS(SISKIN_ERROR_CANCELLED, siskin_encoder_embed(encoder, both));
    OK(siskin_encoder_embed(encoder, both));
    siskin_texts_free(both);
    siskin_texts_free(alone);
    siskin_encoder_free(encoder);
}

static void classes(char **arguments) {
    siskin_encoder *encoder = open_encoder(arguments, "classes", true);
    siskin_texts *texts = texts_of("good", "bad");
    siskin_found found = {.struct_size = sizeof found};
    size_t count = 0;
    OK(siskin_encoder_classify(encoder, texts));
    OK(siskin_encoder_found_count(encoder, 1, &count));
    float all = 0, last = 1;
    for (size_t rank = 0; rank < count; rank++) {
        OK(siskin_encoder_found(encoder, 1, rank, &found));
        CHECK(found.length > 0 && is_utf8(found.text, found.length) && found.score <= last);
        last = found.score;
        all += found.score;
    }
    CHECK(count > 1 && fabsf(all - 1) < 1e-4f);
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_found(encoder, 1, count, &found));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_found_count(encoder, 2, &count));
    OK(siskin_encoder_rerank(encoder, TEXT("how is it"), texts));
    OK(siskin_encoder_found(encoder, 1, 0, &found));
    CHECK(isfinite(found.score) && found.length == 0);
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_tag(encoder, texts));
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_answer(encoder, TEXT("who"), texts));
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_encoder_fill_mask(encoder, TEXT("a [MASK]"), 3));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_set_long(encoder, 99, 0));
    // Longer than the maximum length of the model.
    char text[4000];
    memset(text, 'a', sizeof text);
    for (size_t i = 1; i < sizeof text; i += 2) text[i] = ' ';
    siskin_texts *far = NULL;
    OK(siskin_texts_new(&far));
    OK(siskin_texts_add(far, text, sizeof text));
    FAILS(SISKIN_ERROR_TOO_LONG, siskin_encoder_classify(encoder, far));
    OK(siskin_encoder_set_long(encoder, SISKIN_LONG_CUT, 0));
    OK(siskin_encoder_classify(encoder, far));
    siskin_texts_free(far);
    siskin_texts_free(texts);
    siskin_encoder_free(encoder);
}

static void spans(char **arguments) {
    const char *text = "anna lives in rome";
    siskin_encoder *encoder = open_encoder(arguments, "labels", true);
    siskin_texts *texts = texts_of(text, NULL);
    siskin_found found = {.struct_size = sizeof found};
    size_t count = 0;
    OK(siskin_encoder_tag(encoder, texts));
    OK(siskin_encoder_found_count(encoder, 0, &count));
    for (size_t rank = 0; rank < count; rank++) {
        OK(siskin_encoder_found(encoder, 0, rank, &found));
        CHECK(found.start < found.end && found.end <= strlen(text));
    }
    siskin_encoder_free(encoder);
    encoder = open_encoder(arguments, "answers", true);
    OK(siskin_encoder_answer(encoder, TEXT("where does anna live"), texts));
    OK(siskin_encoder_found(encoder, 0, 0, &found));
    CHECK(found.end - found.start == found.length && found.length > 0 && found.score > 0);
    CHECK(memcmp(text + found.start, found.text, found.length) == 0);
    siskin_texts_free(texts);
    siskin_encoder_free(encoder);
}

static void masks(char **arguments) {
    siskin_encoder *encoder = open_encoder(arguments, "vectors", true);
    siskin_found found = {.struct_size = sizeof found};
    size_t count = 0, places = 7;
    OK(siskin_encoder_found_places(encoder, &places));
    CHECK(places == 0);
    OK(siskin_encoder_fill_mask(encoder, TEXT("the [MASK] is [MASK]"), 3));
    OK(siskin_encoder_found_places(encoder, &places));
    CHECK(places == 2);
    for (size_t place = 0; place < places; place++) {
        float before = 1;
        OK(siskin_encoder_found_count(encoder, place, &count));
        CHECK(count == 3);
        for (size_t rank = 0; rank < count; rank++) {
            OK(siskin_encoder_found(encoder, place, rank, &found));
            CHECK(found.score > 0 && found.score <= before && found.token != UINT32_MAX && found.length > 0);
            before = found.score;
        }
    }
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_found_count(encoder, 2, &count));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_encoder_fill_mask(encoder, TEXT("nothing is hidden"), 3));
    siskin_encoder_free(encoder);
}

static void writers(char **arguments) {
    siskin_model *model = open_model(arguments, "translates");
    siskin_writer *writer = NULL;
    siskin_writing *writing = NULL;
    siskin_texts *texts = texts_of("good morning", "a");
    siskin_written written = {.struct_size = sizeof written};
    size_t count = 0;
    OK(siskin_writer_new(model, 8, 64, &writer));
    OK(siskin_writing_new_translation(model, NULL, 0, NULL, 0, &writing));
    OK(siskin_writing_set(writing, SISKIN_WRITING_BEAMS, 3));
    OK(siskin_writing_set(writing, SISKIN_WRITING_BEST, 2));
    OK(siskin_writing_set(writing, SISKIN_WRITING_MAX_TOKENS, 8));
    OK(siskin_writing_set_long(writing, SISKIN_LONG_CUT, 0));
    OK(siskin_writing_set_before(writing, TEXT("")));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_writing_set(writing, 99, 1));
    OK(siskin_writer_write(writer, texts, writing));
    for (size_t index = 0; index < 2; index++) {
        OK(siskin_writer_count(writer, index, &count));
        CHECK(count == 2);
        double before = INFINITY;
        for (size_t rank = 0; rank < count; rank++) {
            OK(siskin_writer_written(writer, index, rank, &written));
            CHECK(is_utf8(written.text, written.length) && written.token_count <= 9 && written.score <= before);
            before = written.score;
        }
    }
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_writer_written(writer, 2, 0, &written));
    OK(siskin_writer_stop(writer));
    FAILS(SISKIN_ERROR_CANCELLED, siskin_writer_write(writer, texts, writing));
    OK(siskin_writer_write(writer, texts, NULL));
    siskin_writing_free(writing);
    OK(siskin_writing_new(model, &writing));
    siskin_writing_free(writing);
    OK(siskin_writing_new_summary(model, &writing));
    siskin_writing_free(writing);
    siskin_transcriber *transcriber = NULL;
    FAILS(SISKIN_ERROR_UNSUPPORTED, siskin_transcriber_new(model, &transcriber));
    siskin_texts_free(texts);
    siskin_writer_free(writer);
    siskin_model_free(model);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    vectors(arguments);
    classes(arguments);
    spans(arguments);
    masks(arguments);
    writers(arguments);
    puts("readers: ok");
    return 0;
}
