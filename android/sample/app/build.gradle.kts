// SPDX-License-Identifier: MIT OR Apache-2.0
plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "ai.siskin.sample"
    compileSdk = 35
    defaultConfig {
        applicationId = "ai.siskin.sample"
        minSdk = 21
        targetSdk = 35
        versionCode = 1
        versionName = "1"
    }
    // Assets can only be mapped from the package if they are not compressed.
    androidResources { noCompress += "siskin" }
    kotlinOptions { jvmTarget = "1.8" }
    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
}

dependencies {
    implementation("ai.siskin:siskin:0.1.0")
    implementation("org.jetbrains.kotlinx:kotlinx-coroutines-android:1.8.1")
}
