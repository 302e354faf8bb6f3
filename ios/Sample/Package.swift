// swift-tools-version: 6.0
import PackageDescription

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
        .executableTarget(name: "SampleApp", dependencies: ["Sample"]),
        .testTarget(name: "SampleModelTests", dependencies: ["SampleModel"]),
    ],
    swiftLanguageModes: [.v6]
)
