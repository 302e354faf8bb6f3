// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "Sample",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "Sample", targets: ["Sample"])],
    dependencies: [.package(name: "Siskin", path: "..")],
    targets: [
        // What the app does, without a screen: compiles and is tested everywhere.
        .target(name: "SampleModel", dependencies: ["Siskin"]),
        // What it shows: SwiftUI.
        .target(name: "Sample", dependencies: ["SampleModel"]),
        .testTarget(name: "SampleModelTests", dependencies: ["SampleModel"]),
    ],
    swiftLanguageModes: [.v6]
)
