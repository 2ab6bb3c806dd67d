// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "Measure",
    platforms: [.macOS(.v13)],
    // Beside this one lies the package that bindings/uniffi/swift/pack made.
    dependencies: [.package(name: "Polylatch", path: "../package")],
    targets: [.executableTarget(name: "Measure", dependencies: ["Polylatch"])]
)
