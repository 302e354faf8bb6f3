// SPDX-License-Identifier: MIT OR Apache-2.0
package ai.siskin.android

import ai.siskin.Model
import ai.siskin.Session
import ai.siskin.SiskinException
import ai.siskin.Throttle
import ai.siskin.TrimLevel
import ai.siskin.assertThrows
import ai.siskin.greedySession
import ai.siskin.runTest
import ai.siskin.smallModel
import ai.siskin.withModel
import android.content.ComponentCallbacks2
import android.content.ContentResolver
import android.content.Context
import android.content.Intent
import android.content.res.AssetManager
import android.net.Uri
import android.os.BatteryManager
import android.os.Build
import android.os.FakeDevice
import android.os.ParcelFileDescriptor
import android.os.PowerManager
import java.io.File
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.toList
import org.junit.Assert.assertEquals
import org.junit.Assert.assertNull
import org.junit.Assert.assertTrue
import org.junit.Test

class AndroidTest {
    @Test
    fun `models open from assets, descriptors and documents`() = runTest {
        val expected = withModel("chat") { answer(it) }
        val bytes = File(smallModel("chat")).readBytes()
        val apk = File.createTempFile("app", ".apk")
        apk.writeBytes(ByteArray(16384) + bytes)
        for (length in listOf(bytes.size.toLong(), -1)) {
            val assets = AssetManager(apk.path, 16384, length)
            Model.open(assets, "chat.siskin").use { assertEquals(expected, answer(it)) }
            val error = assertThrows<SiskinException.Io> { Model.open(assets, "other.siskin") }
            assertTrue("noCompress" in error.message && error.location == "other.siskin" && error.cause != null)
        }
        apk.delete()
        val file = ParcelFileDescriptor(smallModel("chat"))
        Model.open(file).use { model ->
            file.close()
            assertEquals(expected, answer(model))
        }
        Model.open(ContentResolver(), Uri(smallModel("chat"))).use { assertEquals(expected, answer(it)) }
        assertThrows<SiskinException.Io> { Model.open(ContentResolver(), Uri("/nowhere/at/all")) }
        assertEquals(expected, answer(openAssetBlocking(AssetManager(smallModel("chat"), 0, -1), "chat.siskin")))
        assertEquals("descriptors are left open", 0, ParcelFileDescriptor.openCount)
    }

    private suspend fun answer(model: Model): List<String> = model.greedySession(8).use { it.chat("hello").toList() }

    @Test
    fun `the device state throttles models`() = runTest {
        val context = Context()
        context.battery = battery(level = 80, plugged = 1)
        withModel("chat") { model ->
            model.throttle = Throttle.Adaptive
            val observer = DeviceStateObserver(context, model)
            val cool = model.throttleStats().dutyCycle
            FakeDevice.setThermalStatus(context.power, 4)
            val hot = model.throttleStats().dutyCycle
            FakeDevice.setThermalStatus(context.power, 0)
            println("throttle: duty cycle $cool when cool, $hot when hot")
            assertTrue(cool == 1f && hot < cool)
            FakeDevice.setPowerSaveMode(context.power, true)
            context.receiver.onReceive(context, Intent(PowerManager.ACTION_POWER_SAVE_MODE_CHANGED))
            context.receiver.onReceive(context, battery(level = 5, plugged = 0))
            observer.close()
            assertNull(context.receiver)
            assertEquals(0, FakeDevice.listenerCount(context.power))
        }
        val closed = withModel("chat") { it }
        DeviceStateObserver(context, closed).use { FakeDevice.setThermalStatus(context.power, 3) }
        Build.VERSION.SDK_INT = 28
        DeviceStateObserver(context, closed).use { assertEquals(0, FakeDevice.listenerCount(context.power)) }
        Build.VERSION.SDK_INT = 34
    }

    private fun battery(level: Int, plugged: Int): Intent = Intent(Intent.ACTION_BATTERY_CHANGED)
        .putExtra(BatteryManager.EXTRA_LEVEL, level)
        .putExtra(BatteryManager.EXTRA_SCALE, 100)
        .putExtra(BatteryManager.EXTRA_PLUGGED, plugged)

    @Test
    fun `sessions are trimmed on memory callbacks`() = runTest {
        val levels = listOf(5, 10, 15, 20, 40, 60, 80)
        val unused = TrimLevel.UNUSED
        assertEquals(listOf(null, unused, unused, unused, unused, unused, unused), levels.map { trimLevel(it, null) })
        assertEquals(listOf(null, unused, unused, unused, unused, TrimLevel.ALL, TrimLevel.ALL), levels.map { trimLevel(it, 60) })
        withModel("chat") { model ->
            val session = model.greedySession(4)
            session.chat("hello").toList()
            val saved = mutableListOf<ByteArray>()
            session.pause()
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
            assertTrue("reset without having been saved", session.stats().position > 0)
            session.close()
            trim(session, saved, ComponentCallbacks2.TRIM_MEMORY_COMPLETE)
        }
    }

    private suspend fun trim(session: Session, saved: MutableList<ByteArray>, level: Int) = coroutineScope {
        val memory = MemoryCallbacks(this, ComponentCallbacks2.TRIM_MEMORY_MODERATE) { saved += it.save() }
        memory.add(session)
        memory.onTrimMemory(level)
    }
}
