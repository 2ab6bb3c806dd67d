// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "Polylatch",
    platforms: [.macOS(.v13), .iOS(.v16)],
    products: [.library(name: "Polylatch", targets: ["Polylatch"])],
    targets: [
        // The C header of the native library, which is linked by its name.
        .target(name: "PolylatchNativeFFI", linkerSettings: [.linkedLibrary("polylatch_uniffi")]),
        // Generated.
        .target(name: "PolylatchNative", dependencies: ["PolylatchNativeFFI"]),
        .target(name: "Polylatch", dependencies: ["PolylatchNative"]),
        .testTarget(name: "PolylatchTests", dependencies: ["Polylatch"]),
    ]
)
