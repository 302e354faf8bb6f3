// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "Chat",
    platforms: [.macOS(.v14)],
    dependencies: [.package(name: "Siskin", path: "../../ios")],
    targets: [.executableTarget(name: "Chat", dependencies: ["Siskin"])],
    swiftLanguageModes: [.v6]
)
