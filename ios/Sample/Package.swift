// swift-tools-version: 6.0
import PackageDescription

// The Observation library of Swift 6.0 for Linux has an undefined symbol that is never called.
let linkerSettings: [LinkerSetting] = [
    .unsafeFlags(["-Xlinker", "--allow-shlib-undefined"], .when(platforms: [.linux]))
]

let package = Package(
    name: "Sample",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [
        .library(name: "Sample", targets: ["Sample"]),
        .executable(name: "SampleApp", targets: ["SampleApp"]),
    ],
    dependencies: [.package(name: "Siskin", path: "..")],
    targets: [
        // View models, which build and are tested on every platform.
        .target(name: "SampleModel", dependencies: ["Siskin"]),
        // SwiftUI views.
        .target(name: "Sample", dependencies: ["SampleModel"]),
        // The app, for Macs.
        .executableTarget(name: "SampleApp", dependencies: ["Sample"], linkerSettings: linkerSettings),
        .testTarget(name: "SampleModelTests", dependencies: ["SampleModel"], linkerSettings: linkerSettings),
    ],
    swiftLanguageModes: [.v6]
)
