// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

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
}
