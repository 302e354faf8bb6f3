#include <siskin.h>
#include <stdio.h>
#include <string.h>

// Prints an error and frees it.
static int failed(siskin_error *error) {
    if (error == NULL) return 0;
    fprintf(stderr, "%s: %s\n", siskin_error_place(error), siskin_error_message(error));
    siskin_error_free(error);
    return 1;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    siskin_model *model = NULL;
    siskin_session *session = NULL;
    siskin_piece piece = {.struct_size = sizeof piece};
    const char *path = arguments[1], *question = arguments[2];

    int bad = failed(siskin_model_open(path, strlen(path), NULL, &model))
        || failed(siskin_session_new(model, NULL, &session))
        || failed(siskin_session_prompt(session, question, strlen(question)));
    while (!bad && !(bad = failed(siskin_session_next(session, &piece))) && !piece.done) {
        fwrite(piece.text, 1, piece.length, stdout);
        fflush(stdout);
    }
    siskin_session_free(session);
    siskin_model_free(model);
    return bad;
}
