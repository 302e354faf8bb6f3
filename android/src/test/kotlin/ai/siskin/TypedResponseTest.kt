// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.toList
import kotlinx.serialization.Contextual
import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.KSerializer
import kotlinx.serialization.SerialName
import kotlinx.serialization.Serializable
import kotlinx.serialization.builtins.ListSerializer
import kotlinx.serialization.builtins.serializer
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonClassDiscriminator
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.serializer
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test

/** Schemas of types, and responses that are decoded. */
class TypedResponseTest {
    @Serializable
    private class Numbers(val a: Byte, val b: Short, val c: Int, val d: Long, val e: Float, val f: Double)

    @Serializable
    private class UnsignedNumbers(val a: UByte, val b: UShort, val c: UInt?, val d: ULong)

    @Serializable
    private class Scalars(val yes: Boolean, val text: String, val letter: Char)

    @Serializable
    private class Optionals(val a: String?, val b: Boolean = true, val c: String? = null)

    @Serializable
    private enum class Color { RED, @SerialName("dark green") GREEN }

    @Serializable
    private class Containers(
        val names: List<String>,
        val ages: Map<String, List<Boolean>>,
        val perColor: Map<Color, Boolean>,
        val colors: Set<Color?>,
    )

    @Serializable
    @JvmInline
    private value class Name(val text: String)

    @Serializable
    @JvmInline
    private value class MaybeName(val text: String?)

    @Serializable
    private class Named(val name: Name, val other: MaybeName, val byName: Map<Name, Boolean>)

    @Serializable
    private class Renamed(@SerialName("der \"Titel\"") val title: Boolean)

    @Serializable
    private sealed interface Shape {
        @Serializable
        @SerialName("circle")
        data class Circle(val filled: Boolean) : Shape

        @Serializable
        @SerialName("nothing")
        data object Nothing : Shape
    }

    @Serializable
    private class Drawing(val shape: Shape, val circle: Shape.Circle)

    @OptIn(ExperimentalSerializationApi::class)
    @Serializable
    @JsonClassDiscriminator("kind")
    private sealed class Animal {
        @Serializable
        @SerialName("cat")
        class Cat(val type: Boolean) : Animal()
    }

    @Serializable
    private class Node(val value: Boolean, val children: List<Node>, val next: Node? = null)

    @Serializable
    private class Tree<T>(val value: T, val children: List<Tree<T>> = emptyList())

    @Serializable
    private class Trees(val first: Tree<Boolean>, val second: Tree<List<Boolean>>, val third: Tree<Boolean>)

    @Serializable
    private sealed interface Expression {
        @Serializable
        @SerialName("not")
        class Not(val operand: Expression) : Expression

        @Serializable
        @SerialName("constant")
        class Constant(val value: Boolean) : Expression
    }

    @Serializable
    private class Two(val left: Scalar, val right: Scalar)

    @Serializable
    private class Scalar(val value: Boolean)

    private inline fun <reified T> schema() = StructuredOutput.jsonSchema<T>().schema

    /** The schema of an object whose properties are `required`, unless others are given. */
    private fun obj(properties: String, required: String) =
        """{"type":"object","properties":{$properties},"required":[$required],"additionalProperties":false}"""

    private val boolean = """{"type":"boolean"}"""
    private val string = """{"type":"string"}"""

    private fun integer(minimum: Any, maximum: Any) = """{"type":"integer","minimum":$minimum,"maximum":$maximum}"""

    private fun orNull(schema: String) = """{"anyOf":[$schema,{"type":"null"}]}"""

    @Test
    fun `scalars have their ranges`() {
        val int = integer(Int.MIN_VALUE, Int.MAX_VALUE)
        val long = integer(-9007199254740991, 9007199254740991)
        val number = """{"type":"number"}"""
        val numbers = """"a":${integer(-128, 127)},"b":${integer(-32768, 32767)},"c":$int,"d":$long,"e":$number,"f":$number"""
        assertEquals(obj(numbers, """"a","b","c","d","e","f""""), schema<Numbers>())
        val unsigned = """"a":${integer(0, 255)},"b":${integer(0, 65535)},"c":${orNull(integer(0, 4294967295))},""" +
            """"d":${integer(0, 9007199254740991)}"""
        assertEquals(obj(unsigned, """"a","b","c","d""""), schema<UnsignedNumbers>())
        val scalars = """"yes":$boolean,"text":$string,"letter":{"type":"string","minLength":1,"maxLength":1}"""
        assertEquals(obj(scalars, """"yes","text","letter""""), schema<Scalars>())
        assertEquals(boolean, schema<Boolean>())
    }

    @Test
    fun `null is allowed and properties with defaults are optional`() {
        val properties = """"a":${orNull(string)},"b":$boolean,"c":${orNull(string)}"""
        assertEquals(obj(properties, """"a""""), schema<Optionals>())
        assertEquals(orNull(boolean), schema<Boolean?>())
    }

    @Test
    fun `lists and maps have the schema of their values`() {
        val color = """{"type":"string","enum":["RED","dark green"]}"""
        val properties = """"names":{"type":"array","items":$string},""" +
            """"ages":{"type":"object","additionalProperties":{"type":"array","items":$boolean}},""" +
            """"perColor":{"type":"object","properties":{"RED":$boolean,"dark green":$boolean},"additionalProperties":false},""" +
            """"colors":{"type":"array","items":${orNull(color)}}"""
        assertEquals(obj(properties, """"names","ages","perColor","colors""""), schema<Containers>())
        assertEquals("""{"type":"array","items":$color}""", schema<List<Color>>())
        val list = StructuredOutput.jsonSchema(ListSerializer(Boolean.serializer()))
        assertEquals("""{"type":"array","items":$boolean}""", list.schema)
    }

    @Test
    fun `value classes are what they contain and names are those of the serializer`() {
        val properties =
            """"name":$string,"other":${orNull(string)},"byName":{"type":"object","additionalProperties":$boolean}"""
        assertEquals(obj(properties, """"name","other","byName""""), schema<Named>())
        assertEquals(obj(""""der \"Titel\"":$boolean""", """"der \"Titel\"""""), schema<Renamed>())
    }

    @Test
    fun `sealed classes have a discriminator`() {
        val circle = obj(""""type":{"const":"circle"},"filled":$boolean""", """"type","filled"""")
        val nothing = obj(""""type":{"const":"nothing"}""", """"type"""")
        val shape = """{"anyOf":[$circle,$nothing]}"""
        assertEquals(shape, schema<Shape>())
        val plain = obj(""""filled":$boolean""", """"filled"""")
        assertEquals(obj(""""shape":$shape,"circle":$plain""", """"shape","circle""""), schema<Drawing>())
        val cat = obj(""""kind":{"const":"cat"},"type":$boolean""", """"kind","type"""")
        assertEquals("""{"anyOf":[$cat]}""", schema<Animal>())
    }

    @Test
    fun `types that contain themselves are referenced`() {
        fun root(name: String, definitions: String) = """{"${'$'}ref":"#/${'$'}defs/$name","${'$'}defs":{$definitions}}"""
        fun reference(name: String) = """{"${'$'}ref":"#/${'$'}defs/$name"}"""
        fun list(name: String) = """{"type":"array","items":${reference(name)}}"""
        val node = obj(
            """"value":$boolean,"children":${list("Node")},"next":${orNull(reference("Node"))}""",
            """"value","children"""",
        )
        assertEquals(root("Node", """"Node":$node"""), schema<Node>())
        val not = obj(""""type":{"const":"not"},"operand":${reference("Expression")}""", """"type","operand"""")
        val constant = obj(""""type":{"const":"constant"},"value":$boolean""", """"type","value"""")
        assertEquals(root("Expression", """"Expression":{"anyOf":[$constant,$not]}"""), schema<Expression>())
        // Generic types with different arguments are different types.
        val first = obj(""""value":$boolean,"children":${list("Tree")}""", """"value"""")
        val second = obj(""""value":{"type":"array","items":$boolean},"children":${list("Tree2")}""", """"value"""")
        val trees = obj(
            """"first":${reference("Tree")},"second":${reference("Tree2")},"third":${reference("Tree")}""",
            """"first","second","third"""",
        ).dropLast(1)
        assertEquals("""$trees,"${'$'}defs":{"Tree":$first,"Tree2":$second}}""", schema<Trees>())
        // A type that is only used twice is not.
        val scalar = obj(""""value":$boolean""", """"value"""")
        assertEquals(obj(""""left":$scalar,"right":$scalar""", """"left","right""""), schema<Two>())
    }

    private interface Open

    private class Foreign

    @Serializable
    private class WithOpen(val list: List<Map<String, Open>>)

    @Serializable
    private class WithContextual(@Contextual val inner: Foreign)

    @Serializable
    private class WithElement(val inner: JsonElement?)

    @Serializable
    private class WithObject(val inner: List<JsonObject>)

    @Serializable
    private class WithNumberedKeys(val inner: Map<Int, String>)

    @Serializable
    private class WithNullableKeys(val inner: Map<String?, String>)

    @Serializable
    private sealed interface Wrapped {
        @Serializable
        @JvmInline
        @SerialName("text")
        value class Text(val text: String) : Wrapped
    }

    @Serializable
    private class WithWrapped(val inner: Wrapped)

    @Serializable
    private sealed interface Ambiguous {
        @Serializable
        class Case(val type: String) : Ambiguous
    }

    @Test
    fun `types without a fixed form are rejected with the path of the property`() = runTest {
        val cases: List<Triple<KSerializer<*>, String, String>> = listOf(
            Triple(serializer<WithOpen>(), "WithOpen.list[][]", "make it sealed"),
            Triple(serializer<WithContextual>(), "WithContextual.inner", "contextual"),
            Triple(serializer<WithElement>(), "WithElement.inner", "has no fixed form"),
            Triple(serializer<WithObject>(), "WithObject.inner[]", "has no fixed form"),
            Triple(serializer<WithNumberedKeys>(), "WithNumberedKeys.inner", "keys of a map"),
            Triple(serializer<WithNullableKeys>(), "WithNullableKeys.inner", "must not be null"),
            Triple(serializer<WithWrapped>(), "WithWrapped.inner.text", "not serialized as an object"),
            Triple(serializer<Ambiguous>(), "Ambiguous.Case", "class discriminator"),
        )
        for ((serializer, path, reason) in cases) {
            val error = assertThrows<SiskinException.Argument> { StructuredOutput.jsonSchema(serializer) }
            assertEquals(path, error.location)
            assertTrue(error.message, reason in error.message)
        }
    }

    @Serializable
    private data class Report(
        val color: Color,
        val score: Byte,
        val shape: Shape,
        val certain: Boolean? = null,
    )

    @Serializable
    private class Rejecting(val yes: Boolean) {
        init {
            require(yes && !yes) { "never" }
        }
    }

    /** Greedy, without white space, for which the model's context of 128 tokens is too short. Its tokens are bytes. */
    private val compact = Sampler.greedy().apply {
        logitBias = "\t\n\r ".associate { it.code to Float.NEGATIVE_INFINITY }
    }

    @Test
    fun `responses are decoded`() = runTest {
        withModel("chat") { model ->
            val messages = listOf(Message("user", "Well?"))
            model.session { sampler = compact }.use { session ->
                val choice = StructuredOutput.Choice(listOf("yes", "no"))
                session.setStructuredOutput(choice)
                val report = session.generateAs<Report>("Well?")
                println("typed: $report")
                assertEquals(FinishReason.EOS, session.finishReason)
                session.reset()
                assertEquals(report, session.generateAs<Report>(messages))
                session.reset()
                // What was set before is in force again.
                assertTrue(session.chat("Well?").toList().joinToString("") in choice.texts)
                session.reset()
                val error = assertThrows<SiskinException.Corrupt> { session.generateAs<Rejecting>("Well?") }
                assertTrue(error.message, error.message.endsWith("never"))
                session.setMaxTokens(4)
                assertThrows<SiskinException.TooLong> { session.generateAs<Report>("Well?") }
                assertThrows<SiskinException.Argument> { session.generateAs<WithOpen>("Well?") }
                session.reset()
                assertThrows<SiskinException.TooLong> { recipe(session, "pancakes") }
                Engine.create().use { engine ->
                    val served = engine.add(model)
                    val options = RequestOptions().apply { sampler = compact; structuredOutput = choice }
                    assertEquals(report, served.generateAs<Report>("Well?", options))
                    assertEquals(report, served.generateAs<Report>(messages, options))
                    assertEquals(choice, options.structuredOutput)
                    options.maxTokens = 4
                    assertThrows<SiskinException.TooLong> { served.generateAs<Report>("Well?", options) }
                    engine.drain(0)
                    assertThrows<SiskinException.Overloaded> { served.generateAs<Report>("Well?") }
                }
            }
        }
    }

    @Test
    fun `a response that is canceled is not decoded`() = runTest {
        withModel("chat") { model ->
            model.greedySession(null).use { session ->
                session.pause()
                val response = async { runCatching { session.generateAs<Report>("Well?") } }
                delay(50)
                session.cancel()
                assertTrue(response.await().exceptionOrNull() is SiskinException.Canceled)
            }
        }
    }
}
