// SPDX-License-Identifier: MIT OR Apache-2.0
plugins {
    id("com.android.application") version "8.7.3" apply false
    id("org.jetbrains.kotlin.android") version "2.0.21" apply false
}
