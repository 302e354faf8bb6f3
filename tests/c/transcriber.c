// Speech-to-text. Arguments: a speech model, and a WAV file with English speech.
#include "check.h"

typedef struct {
    size_t count, limit, text_length, releases;
} segments_seen;

static bool see_segment(void *user, const siskin_segment *segment) {
    segments_seen *seen = user;
    CHECK(segment->struct_size == sizeof *segment && segment->length > 0 && is_utf8(segment->text, segment->length));
    FAILS(SISKIN_ERROR_BUSY, siskin_log_set(NULL, NULL, NULL));
    seen->text_length += segment->length;
    return ++seen->count < seen->limit;
}

static void release_segments(void *user) { ((segments_seen *)user)->releases++; }

int main(int count, char **arguments) {
    CHECK(count == 3);
    siskin_model *model = NULL;
    siskin_transcriber *transcriber = NULL;
    OK(siskin_model_open(TEXT(arguments[1]), NULL, &model));
    siskin_model_info info = {.struct_size = sizeof info};
    OK(siskin_model_describe(model, &info));
    CHECK(info.capabilities & SISKIN_CAPABILITY_TRANSCRIBE);
    OK(siskin_transcriber_new(model, &transcriber));
    siskin_model_free(model);
    OK(siskin_transcriber_set(transcriber, SISKIN_TRANSCRIBE_TIMESTAMPS, 1));
    OK(siskin_transcriber_reset_options(transcriber));
    OK(siskin_transcriber_set(transcriber, SISKIN_TRANSCRIBE_TIMESTAMPS, 1));
    OK(siskin_transcriber_set_prompt(transcriber, NULL, 0));
    FAILS(SISKIN_ERROR_ARGUMENT, siskin_transcriber_set(transcriber, SISKIN_TRANSCRIBE_BEAMS, -1));
    FAILS(SISKIN_ERROR_CORRUPT, siskin_transcriber_transcribe_wav(transcriber, (const uint8_t *)"RIFF", 4));
    static uint8_t bytes[8 << 20];
    FILE *file = fopen(arguments[2], "rb");
    CHECK(file != NULL);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    OK(siskin_transcriber_cancel(transcriber));
    FAILS(SISKIN_ERROR_CANCELED, siskin_transcriber_transcribe_wav(transcriber, bytes, length));
    segments_seen seen = {.limit = 100};
    OK(siskin_transcriber_set_segment_function(transcriber, see_segment, &seen, release_segments));
    OK(siskin_transcriber_transcribe_wav(transcriber, bytes, length));
    const char *text = NULL, *language = NULL;
    size_t text_length = 0, language_length = 0, segments = 0;
    OK(siskin_transcriber_text(transcriber, &text, &text_length, &language, &language_length));
    CHECK(text_length > 10 && is_utf8(text, text_length));
    CHECK(language_length == 2 && memcmp(language, "en", 2) == 0);
    printf("transcriber: ok (%.*s)\n", (int)text_length, text);
    OK(siskin_transcriber_segment_count(transcriber, &segments));
    double before = 0;
    for (size_t index = 0; index < segments; index++) {
        siskin_segment segment = {.struct_size = sizeof segment};
        OK(siskin_transcriber_segment(transcriber, index, &segment));
        CHECK(segment.start >= before && segment.end > segment.start && segment.length > 0);
        before = segment.start;
    }
    CHECK(segments == 2 && seen.count == segments && seen.text_length + 1 >= text_length && seen.releases == 0);
    // The function ends the call.
    segments_seen once = {.limit = 1};
    OK(siskin_transcriber_set_segment_function(transcriber, see_segment, &once, release_segments));
    FAILS(SISKIN_ERROR_CANCELED, siskin_transcriber_transcribe_wav(transcriber, bytes, length));
    CHECK(once.count == 1 && seen.releases == 1);
    OK(siskin_transcriber_set_segment_function(transcriber, NULL, NULL, NULL));
    CHECK(once.releases == 1);
    // Silence, sample by sample.
    static const float silence[16000];
    OK(siskin_transcriber_set_language(transcriber, TEXT("en")));
    OK(siskin_transcriber_transcribe(transcriber, silence, 16000, 16000));
    OK(siskin_transcriber_transcribe_pcm16(transcriber, (const uint8_t *)silence, 16000, 8000, 1));
    OK(siskin_transcriber_segment_count(transcriber, &segments));
    CHECK(segments == 0);
    siskin_transcriber_free(transcriber);
    return 0;
}
