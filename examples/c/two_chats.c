#include <siskin.h>
#include <stdio.h>

// Prints an error and frees it.
static int failed(siskin_error *error) {
    if (error == NULL) return 0;
    fprintf(stderr, "%s: %s\n", siskin_error_location(error), siskin_error_message(error));
    siskin_error_free(error);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    siskin_model *model = NULL;
    siskin_engine *engine = NULL;
    siskin_generation *generations[2] = {NULL, NULL};
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    uint32_t number = 0;

    int bad = failed(siskin_model_open(argv[1], SISKIN_NUL_TERMINATED, NULL, &model))
        || failed(siskin_engine_new(NULL, &engine))
        || failed(siskin_engine_add_model(engine, model, NULL, &number));
    for (int i = 0; i < 2 && !bad; i++) {
        const char *question = argv[2 + i];
        bad = failed(siskin_engine_submit(engine, number, question, SISKIN_NUL_TERMINATED, NULL, &generations[i]));
    }
    for (int i = 0; i < 2 && !bad; i++) {
        // Waiting for the tokens of one response computes those of the other as well.
        while (!(bad = failed(siskin_generation_next(generations[i], &chunk))) && !chunk.done) {
            fwrite(chunk.text, 1, chunk.length, stdout);
        }
        putchar('\n');
    }
    for (int i = 0; i < 2; i++) siskin_generation_free(generations[i]);
    siskin_engine_free(engine);
    siskin_model_free(model);
    return bad;
}
