// swift-tools-version: 6.0
import PackageDescription

// Paths relative to this file. A release moves the manifest to the root of the repository.
let sources = "Sources"
let tests = "Tests"

#if os(macOS)
// Built by `cargo xtask ios xcframework`.
let libraryTargets: [Target] = [.binaryTarget(name: "SiskinLibrary", path: "SiskinLibrary.xcframework")]
let libraryDependency: [Target.Dependency] = ["SiskinLibrary"]
#else
// On Linux, the linker finds `libsiskin` on its search path.
let libraryTargets: [Target] = []
let libraryDependency: [Target.Dependency] = []
#endif

let package = Package(
    name: "Siskin",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "Siskin", targets: ["Siskin"])],
    targets: libraryTargets + [
        .target(
            name: "CSiskin",
            dependencies: libraryDependency,
            path: "\(sources)/CSiskin",
            linkerSettings: [.linkedLibrary("siskin", .when(platforms: [.linux]))]
        ),
        .target(
            name: "Siskin",
            dependencies: ["CSiskin"],
            path: "\(sources)/Siskin",
            resources: [.copy("PrivacyInfo.xcprivacy")]
        ),
        .testTarget(name: "SiskinTests", dependencies: ["Siskin", "CSiskin"], path: "\(tests)/SiskinTests"),
    ],
    swiftLanguageModes: [.v6]
)
