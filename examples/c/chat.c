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
    if (argc < 3) return 2;
    siskin_model *model = NULL;
    siskin_session *session = NULL;
    siskin_text_chunk chunk = {.struct_size = sizeof chunk};
    const char *path = argv[1], *question = argv[2];

    int bad = failed(siskin_model_open(path, SISKIN_NUL_TERMINATED, NULL, &model))
        || failed(siskin_session_new(model, NULL, &session))
        || failed(siskin_session_prompt(session, question, SISKIN_NUL_TERMINATED));
    while (!bad && !(bad = failed(siskin_session_next(session, &chunk))) && !chunk.done) {
        fwrite(chunk.text, 1, chunk.length, stdout);
        fflush(stdout);
    }
    siskin_session_free(session);
    siskin_model_free(model);
    return bad;
}
