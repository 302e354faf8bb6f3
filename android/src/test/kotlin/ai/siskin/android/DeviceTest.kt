// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Model
import ai.siskin.Pace
import ai.siskin.SiskinException
import ai.siskin.Trim
import ai.siskin.fails
import ai.siskin.greedy
import ai.siskin.paceStats
import ai.siskin.setPace
import ai.siskin.small
import ai.siskin.test
import ai.siskin.with
import android.content.ComponentCallbacks2
import android.content.ContentResolver
import android.content.Context
import android.content.Intent
import android.content.res.AssetManager
import android.net.Uri
import android.os.BatteryManager
import android.os.Build
import android.os.Devices
import android.os.ParcelFileDescriptor
import android.os.PowerManager
import java.io.File
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.toList
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test

class DeviceTest {
    @Test
    fun `models open where they lie`() = test {
        val expected = with("chat") { says(it) }
        val bytes = File(small("chat")).readBytes()
        val apk = File.createTempFile("app", ".apk")
        apk.writeBytes(ByteArray(16384) + bytes)
        for (length in listOf(bytes.size.toLong(), -1)) {
            val assets = AssetManager(apk.path, 16384, length)
            Model.open(assets, "chat.siskin").use { assertEquals(expected, says(it)) }
            val error = fails<SiskinException.Io> { Model.open(assets, "other.siskin") }
            assertTrue("noCompress" in error.message && error.place == "other.siskin" && error.cause != null)
        }
        apk.delete()
        val file = ParcelFileDescriptor(small("chat"))
        Model.open(file).use { model ->
            file.close()
            assertEquals(expected, says(model))
        }
        Model.open(ContentResolver(), Uri(small("chat"))).use { assertEquals(expected, says(it)) }
        fails<SiskinException.Io> { Model.open(ContentResolver(), Uri("/nowhere/at/all")) }
        assertEquals("descriptors are left open", 0, ParcelFileDescriptor.open)
    }

    private suspend fun says(model: Model): List<String> = model.greedy(8).use { it.chat("hello").toList() }

    @Test
    fun `heat and power reach the governor`() = test {
        val context = Context()
        context.battery = battery(level = 80, plugged = 1)
        with("chat") { model ->
            model.setPace(Pace.Full)
            val watch = DeviceWatch(context, model)
            val cool = model.paceStats().duty
            Devices.heat(context.power, 4)
            val hot = model.paceStats().duty
            Devices.heat(context.power, 0)
            println("governor: duty $cool when cool, $hot when hot")
            assertTrue(cool == 1f && hot < cool)
            Devices.save(context.power, true)
            context.receiver.onReceive(context, Intent(PowerManager.ACTION_POWER_SAVE_MODE_CHANGED))
            context.receiver.onReceive(context, battery(level = 5, plugged = 0))
            watch.close()
            assertNull(context.receiver)
            assertEquals(0, Devices.listeners(context.power))
        }
        val closed = with("chat") { it }
        DeviceWatch(context, closed).use { Devices.heat(context.power, 3) }
        Build.VERSION.SDK_INT = 28
        DeviceWatch(context, closed).use { assertEquals(0, Devices.listeners(context.power)) }
        Build.VERSION.SDK_INT = 34
    }

    private fun battery(level: Int, plugged: Int): Intent = Intent(Intent.ACTION_BATTERY_CHANGED)
        .putExtra(BatteryManager.EXTRA_LEVEL, level)
        .putExtra(BatteryManager.EXTRA_SCALE, 100)
        .putExtra(BatteryManager.EXTRA_PLUGGED, plugged)

    @Test
    fun `memory is given back when Android asks`() = test {
        val levels = listOf(5, 10, 15, 20, 40, 60, 80)
        val unused = Trim.UNUSED
        assertEquals(listOf(null, unused, unused, unused, unused, unused, unused), levels.map { trimFor(it, Int.MAX_VALUE) })
        assertEquals(listOf(null, unused, unused, unused, unused, Trim.ALL, Trim.ALL), levels.map { trimFor(it, 60) })
        with("chat") { model ->
            val session = model.greedy(4)
            session.chat("hello").toList()
            val saved = mutableListOf<ByteArray>()
            session.suspend()
            trim(session, saved, ComponentCallbacks2.TRIM_MEMORY_UI_HIDDEN)
            assertTrue(saved.isEmpty() && session.stats().position > 0)
            trim(session, saved, ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
            assertEquals(0, session.stats().position)
            session.resume()
            session.restore(saved.single())
            assertTrue(session.stats().position > 0)
            coroutineScope {
                val memory = MemoryCallbacks(this, ComponentCallbacks2.TRIM_MEMORY_MODERATE) { it.save("/nowhere/at/all") }
                memory.add(session)
                memory.onTrimMemory(ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
            }
            assertTrue("forgot what was not saved", session.stats().position > 0)
            session.close()
            trim(session, saved, ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
        }
    }

    private suspend fun trim(session: ai.siskin.Session, saved: MutableList<ByteArray>, level: Int) = coroutineScope {
        val memory = MemoryCallbacks(this, ComponentCallbacks2.TRIM_MEMORY_MODERATE) { saved += it.save() }
        memory.add(session)
        memory.onTrimMemory(level)
    }
}
