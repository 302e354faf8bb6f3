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
        // The output of `cargo xtask android`.
        maven { url = uri("../../target/android/maven") }
    }
}

include(":app")
