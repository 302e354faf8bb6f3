// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.serialization.DeserializationStrategy
import kotlinx.serialization.serializer

/** What a response must be. All but [Choice] need a library that was built with grammars. */
public sealed class StructuredOutput(internal val kind: Int, internal val definition: String) {
    /** One of these texts. */
    public class Choice(public val texts: List<String>) : StructuredOutput(1, texts.jsonTexts())

    /** A JSON object. */
    public object JsonObject : StructuredOutput(2, "")

    /** JSON that is valid under this JSON Schema. */
    public class JsonSchema(public val schema: String) : StructuredOutput(3, schema)

    /** A match of this regular expression. */
    public class Regex(public val pattern: String) : StructuredOutput(4, pattern)

    /** A sentence of this grammar in Lark. */
    public class Lark(public val grammar: String) : StructuredOutput(5, grammar)

    /** A sentence of this grammar in GBNF, the format of llama.cpp. */
    public class Gbnf(public val grammar: String) : StructuredOutput(6, grammar)

    /** Schemas of types. */
    public companion object {
        /**
         * JSON that `Json` decodes as a [T], which is `@Serializable`: `StructuredOutput.jsonSchema<Recipe>()`.
         *
         * Properties are generated in the order of their declaration. Those with a default value may be left out.
         * Integers beyond 53 bits are not generated. Throws [SiskinException.Argument], whose location is the path of the
         * property, if a type has no fixed form: open polymorphic classes, contextual serializers, `JsonElement`, and
         * maps whose keys are neither strings nor an enum.
         */
        public inline fun <reified T> jsonSchema(): JsonSchema = jsonSchema(serializer<T>())

        /** JSON that `Json` decodes with [deserializer]. */
        @JvmStatic
        public fun jsonSchema(deserializer: DeserializationStrategy<*>): JsonSchema =
            JsonSchema(TypeSchema.of(deserializer.descriptor))
    }
}
