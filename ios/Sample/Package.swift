// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "Sample",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "Sample", targets: ["Sample"])],
    dependencies: [.package(name: "Siskin", path: "..")],
    targets: [
        // The app's logic without UI: builds and is tested on every platform.
        .target(name: "SampleModel", dependencies: ["Siskin"]),
        // The UI, in SwiftUI.
        .target(name: "Sample", dependencies: ["SampleModel"]),
        .testTarget(name: "SampleModelTests", dependencies: ["SampleModel"]),
    ],
    swiftLanguageModes: [.v6]
)
