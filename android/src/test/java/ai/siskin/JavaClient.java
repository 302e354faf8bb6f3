// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin;

import java.util.Collections;
import java.util.List;

/** Uses the blocking API like an app in Java. */
public final class JavaClient {
    private JavaClient() {}

    public static String chat(String path, String question, TextChunkListener listener) throws InterruptedException {
        SessionOptions options = new SessionOptions();
        options.setMaxTokens(200);
        options.setSampler(Sampler.greedy());
        try (Model model = Model.openBlocking(path);
             Session session = model.sessionBlocking(options)) {
            return session.chatBlocking(question, listener);
        }
    }

    public static int nearest(Encoder encoder, List<String> texts, String query) throws InterruptedException {
        List<float[]> vectors = encoder.embedBlocking(texts);
        float[] vector = encoder.embedBlocking(Collections.singletonList(query)).get(0);
        return Vectors.topK(vectors, vector, 1).get(0).getIndex();
    }

    public static FinishReason cancelAfter(Session session, int chunks) throws InterruptedException {
        int[] received = {0};
        session.chatBlocking(Collections.singletonList(new Message("user", "hello")), chunk -> {
            if (++received[0] == chunks) session.cancel();
        });
        return session.getFinishReason();
    }
}
