// SPDX-License-Identifier: MIT OR Apache-2.0
pluginManagement {
    repositories {
        google()
        mavenCentral()
    }
}

dependencyResolutionManagement {
    repositories {
        google()
        mavenCentral()
        // What `cargo xtask android` makes.
        maven { url = uri("../../target/android/maven") }
    }
}

include(":app")
