// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin

import kotlinx.serialization.ExperimentalSerializationApi
import kotlinx.serialization.descriptors.PolymorphicKind
import kotlinx.serialization.descriptors.PrimitiveKind
import kotlinx.serialization.descriptors.SerialDescriptor
import kotlinx.serialization.descriptors.SerialKind
import kotlinx.serialization.descriptors.StructureKind
import kotlinx.serialization.descriptors.elementNames
import kotlinx.serialization.descriptors.nullable
import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonArrayBuilder
import kotlinx.serialization.json.JsonClassDiscriminator
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.add
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.put
import kotlinx.serialization.json.putJsonArray
import kotlinx.serialization.json.putJsonObject

/**
 * Derives the JSON Schema of what `Json` decodes as a type. Types that contain themselves are in `$defs`, all others are
 * written where they are used.
 */
@OptIn(ExperimentalSerializationApi::class)
internal class TypeSchema private constructor() {
    private class Definition(val name: String) {
        /** `null` while the type is being derived. */
        var schema: JsonObject? = null
        var isReferenced = false
    }

    /** Types that are being derived or contain themselves, by their nullable form, which always compares alike. */
    private val definitions = LinkedHashMap<SerialDescriptor, Definition>()

    /** Returns the schema of a type. [path] is its location in errors. */
    private fun schema(type: SerialDescriptor, path: String): JsonObject {
        val schema = withoutNull(type, path)
        if (!acceptsNull(type)) return schema
        return buildJsonObject {
            putJsonArray("anyOf") {
                add(schema)
                add(typed("null"))
            }
        }
    }

    private fun acceptsNull(type: SerialDescriptor): Boolean =
        type.isNullable || type.isInline && acceptsNull(type.getElementDescriptor(0))

    private fun withoutNull(type: SerialDescriptor, path: String): JsonObject {
        val name = type.serialName.removeSuffix("?")
        if (name.startsWith("kotlinx.serialization.json.")) {
            throw unsupported(path, "$name has no fixed form; use a class")
        }
        if (type.isInline) return UNSIGNED[name]?.let(::integer) ?: withoutNull(type.getElementDescriptor(0), path)
        return when (val kind = type.kind) {
            is PrimitiveKind -> primitive(kind)
            SerialKind.ENUM -> enumeration(type)
            StructureKind.LIST -> buildJsonObject {
                put("type", "array")
                put("items", schema(type.getElementDescriptor(0), "$path[]"))
            }
            StructureKind.MAP -> map(type, path)
            StructureKind.CLASS, StructureKind.OBJECT -> shared(type) { properties(type, path) }
            PolymorphicKind.SEALED -> shared(type) { subclasses(type, path) }
            PolymorphicKind.OPEN -> throw unsupported(path, "the subclasses of $name are unknown; make it sealed")
            SerialKind.CONTEXTUAL ->
                throw unsupported(path, "the contextual serializer of $name is unknown; name a serializer")
        }
    }

    private fun primitive(kind: PrimitiveKind): JsonObject = when (kind) {
        PrimitiveKind.BOOLEAN -> typed("boolean")
        PrimitiveKind.BYTE -> integer(Byte.MIN_VALUE.toLong()..Byte.MAX_VALUE)
        PrimitiveKind.SHORT -> integer(Short.MIN_VALUE.toLong()..Short.MAX_VALUE)
        PrimitiveKind.INT -> integer(Int.MIN_VALUE.toLong()..Int.MAX_VALUE)
        PrimitiveKind.LONG -> integer(-MAX_EXACT..MAX_EXACT)
        PrimitiveKind.FLOAT, PrimitiveKind.DOUBLE -> typed("number")
        PrimitiveKind.CHAR -> buildJsonObject {
            put("type", "string")
            put("minLength", 1)
            put("maxLength", 1)
        }
        PrimitiveKind.STRING -> typed("string")
    }

    private fun enumeration(type: SerialDescriptor): JsonObject = buildJsonObject {
        put("type", "string")
        putJsonArray("enum") { type.elementNames.forEach { add(it) } }
    }

    private fun map(type: SerialDescriptor, path: String): JsonObject {
        var key = type.getElementDescriptor(0)
        if (acceptsNull(key)) throw unsupported(path, "the keys of a map must not be null")
        while (key.isInline) key = key.getElementDescriptor(0)
        val value = schema(type.getElementDescriptor(1), "$path[]")
        return buildJsonObject {
            put("type", "object")
            when (key.kind) {
                PrimitiveKind.STRING -> put("additionalProperties", value)
                SerialKind.ENUM -> {
                    putJsonObject("properties") { key.elementNames.forEach { put(it, value) } }
                    put("additionalProperties", false)
                }
                else -> throw unsupported(path, "the keys of a map must be strings or an enum")
            }
        }
    }

    /** Returns the schema of a type that may contain itself: a reference if it does. */
    private fun shared(type: SerialDescriptor, derive: () -> JsonObject): JsonObject {
        val key = type.nullable
        definitions[key]?.let { return reference(it) }
        val definition = Definition(unusedName(shortName(type)))
        definitions[key] = definition
        val schema = derive()
        if (!definition.isReferenced) {
            definitions.remove(key)
            return schema
        }
        definition.schema = schema
        return reference(definition)
    }

    private fun reference(definition: Definition): JsonObject {
        definition.isReferenced = true
        return buildJsonObject { put("\$ref", "#/\$defs/${definition.name}") }
    }

    private fun unusedName(name: String): String {
        val used = definitions.values.map { it.name }.toSet()
        return generateSequence(1) { it + 1 }.map { if (it == 1) name else "$name$it" }.first { it !in used }
    }

    private fun subclasses(type: SerialDescriptor, path: String): JsonObject {
        val annotation = type.annotations.filterIsInstance<JsonClassDiscriminator>().firstOrNull()
        val discriminator = annotation?.discriminator ?: "type"
        val subclasses = type.getElementDescriptor(1)
        return buildJsonObject {
            putJsonArray("anyOf") {
                for (index in 0 until subclasses.elementsCount) {
                    addSubclass(subclasses.getElementDescriptor(index), subclasses.getElementName(index), discriminator, path)
                }
            }
        }
    }

    private fun JsonArrayBuilder.addSubclass(type: SerialDescriptor, name: String, discriminator: String, path: String) {
        val place = "$path.${shortName(type)}"
        val isObject = type.kind == StructureKind.CLASS || type.kind == StructureKind.OBJECT
        if (!isObject || type.isInline) throw unsupported(place, "$name is not serialized as an object with properties")
        if (discriminator in type.elementNames) {
            throw unsupported(place, "$name has a property called `$discriminator`, as the class discriminator is")
        }
        add(properties(type, place, discriminator to name))
    }

    /** Returns the schema of an object. [constant] is a property before the others, with its value. */
    private fun properties(type: SerialDescriptor, path: String, constant: Pair<String, String>? = null): JsonObject =
        buildJsonObject {
            val required = listOfNotNull(constant?.first) +
                (0 until type.elementsCount).filterNot(type::isElementOptional).map(type::getElementName)
            put("type", "object")
            putJsonObject("properties") {
                constant?.let { (name, value) -> putJsonObject(name) { put("const", value) } }
                for (index in 0 until type.elementsCount) {
                    val name = type.getElementName(index)
                    put(name, schema(type.getElementDescriptor(index), "$path.$name"))
                }
            }
            if (required.isNotEmpty()) put("required", JsonArray(required.map(::JsonPrimitive)))
            put("additionalProperties", false)
        }

    companion object {
        /** The largest integer up to which JSON numbers are exact in all programs: 2^53 - 1. */
        private const val MAX_EXACT = (1L shl 53) - 1
        private val UNSIGNED = mapOf(
            "kotlin.UByte" to 0L..UByte.MAX_VALUE.toLong(),
            "kotlin.UShort" to 0L..UShort.MAX_VALUE.toLong(),
            "kotlin.UInt" to 0L..UInt.MAX_VALUE.toLong(),
            "kotlin.ULong" to 0L..MAX_EXACT,
        )

        /** Returns the schema as JSON. */
        fun of(type: SerialDescriptor): String {
            val builder = TypeSchema()
            val schema = builder.schema(type, shortName(type))
            val definitions = builder.definitions.values.associate { it.name to it.schema!! }
            return JsonObject(if (definitions.isEmpty()) schema else schema + ("\$defs" to JsonObject(definitions))).toString()
        }

        private fun typed(name: String) = buildJsonObject { put("type", name) }

        private fun integer(range: LongRange) = buildJsonObject {
            put("type", "integer")
            put("minimum", range.first)
            put("maximum", range.last)
        }

        /** The name of a type without its package, in letters that a reference may contain. */
        private fun shortName(type: SerialDescriptor): String =
            type.serialName.removeSuffix("?").substringAfterLast('.').replace(Regex("[^A-Za-z0-9_-]"), "_")

        private fun unsupported(path: String, reason: String) = SiskinException.Argument(path, reason)
    }
}
