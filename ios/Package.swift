// swift-tools-version: 6.0
import PackageDescription

// Where the sources are, seen from this file.
let sources = "Sources"
let tests = "Tests"

#if os(macOS)
// `cargo xtask ios` makes it.
let library: [Target] = [.binaryTarget(name: "SiskinLibrary", path: "SiskinLibrary.xcframework")]
let libraryOfTarget: [Target.Dependency] = ["SiskinLibrary"]
#else
// Elsewhere the linker finds `libsiskin` as it finds other libraries.
let library: [Target] = []
let libraryOfTarget: [Target.Dependency] = []
#endif

let package = Package(
    name: "Siskin",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "Siskin", targets: ["Siskin"])],
    targets: library + [
        .target(
            name: "CSiskin",
            dependencies: libraryOfTarget,
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
