// Prints the cosine similarity of a text to other texts: embed MODEL TEXT OTHER…
#include <siskin.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Turns the error of a failed call into an exception.
static void check(siskin_error *error) {
    if (error == nullptr) return;
    std::string message = std::string(siskin_error_location(error)) + ": " + siskin_error_message(error);
    siskin_error_free(error);
    throw std::runtime_error(message);
}

// Frees a handle at the end of its scope.
template <auto Free> struct Freed {
    template <typename T> void operator()(T *handle) const { Free(handle); }
};
using Model = std::unique_ptr<siskin_model, Freed<siskin_model_free>>;
using Encoder = std::unique_ptr<siskin_encoder, Freed<siskin_encoder_free>>;
using Strings = std::unique_ptr<siskin_strings, Freed<siskin_strings_free>>;

static std::vector<float> embedding(const Encoder &encoder, size_t index) {
    const float *values = nullptr;
    size_t count = 0;
    check(siskin_encoder_embedding(encoder.get(), index, &values, &count));
    return {values, values + count};
}

static void run(const std::string &path, const std::vector<std::string> &texts) {
    siskin_model *opened = nullptr;
    check(siskin_model_open(path.data(), path.size(), nullptr, &opened));
    Model model(opened);
    siskin_encoder *made = nullptr;
    // Hidden states, not the outputs of a head; the default size of a batch.
    check(siskin_encoder_new(model.get(), false, 0, SISKIN_KV_CACHE_AUTO, &made));
    Encoder encoder(made);
    siskin_strings *list = nullptr;
    check(siskin_strings_new(&list));
    Strings strings(list);
    for (const std::string &text : texts) check(siskin_strings_add(list, text.data(), text.size()));

    check(siskin_encoder_embed(encoder.get(), strings.get()));
    std::vector<float> query = embedding(encoder, 0);
    for (size_t index = 1; index < texts.size(); index++) {
        std::vector<float> other = embedding(encoder, index);
        // Embeddings have unit length, so that their dot product is the cosine.
        float similarity = 0;
        for (size_t i = 0; i < query.size(); i++) similarity += query[i] * other[i];
        std::printf("%.4f  %s\n", similarity, texts[index].c_str());
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        std::fputs("usage: embed MODEL TEXT OTHER...\n", stderr);
        return 2;
    }
    try {
        run(argv[1], {argv + 2, argv + argc});
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
