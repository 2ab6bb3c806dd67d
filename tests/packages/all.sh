# shellcheck shell=bash
# Sourced by tests/packages/run, whose --all calls build_beside early, and build_all and try_all late: they build every package for
# Linux, and have each tried where it can run here. They use its `out`, `scratch`, `host`, `version`, `maturin` and `built`.

# What the window loads when it starts.
window_needs="libc6 (>= $OLDEST_GLIBC), libgcc-s1, libgl1, libegl1, libxkbcommon0, libxkbcommon-x11-0, libx11-6, libx11-xcb1, libxcursor1, libxi6"
# Most of what is tried here needs this machine's.
if [ ${#targets[@]} -gt 0 ]; then
  [[ " ${targets[*]} " = *" $host "* ]] || targets=("$host" "${targets[@]}")
else
  targets=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
fi
declare -A node_name=([x86_64-unknown-linux-gnu]=linux-x64-gnu [aarch64-unknown-linux-gnu]=linux-arm64-gnu
  [x86_64-unknown-linux-musl]=linux-x64-musl [aarch64-unknown-linux-musl]=linux-arm64-musl)
declare -A gem_name=([x86_64-unknown-linux-gnu]=x86_64-linux-gnu [aarch64-unknown-linux-gnu]=aarch64-linux-gnu
  [x86_64-unknown-linux-musl]=x86_64-linux-musl [aarch64-unknown-linux-musl]=aarch64-linux-musl)
# As JNA calls them. It has one name for both C libraries, and runs on glibc only.
declare -A jna_name=([x86_64-unknown-linux-gnu]=linux-x86-64 [aarch64-unknown-linux-gnu]=linux-aarch64)
declare -A debian_name=([x86_64]=amd64 [aarch64]=arm64)
# What is compiled where it is installed; `tests/packages/try` knows them so.
sources=('source distribution' "polylatch-$version.gem")
host_gem=polylatch-$version-${gem_name[$host]:-}.gem

# archive NAME CRATE TARGET FILE...: packs the files, given as PATH or PATH=NAME within, with the licences and the bill of materials
# of what the crate is compiled from. Leaves the folder in $scratch/NAME.
archive() {
  local name=$1 crate=$2 target=$3 file folder=$scratch/$1
  shift 3
  mkdir -p "$folder"
  for file; do install -D -m "$([ -x "${file%%=*}" ] && echo 755 || echo 644)" "${file%%=*}" "$folder/$(basename_of "$file")"; done
  cp LICENSE "$folder/"
  bindings/notices "$crate" >"$folder/THIRD-PARTY-NOTICES.txt"
  bindings/notices --sbom "$target" "$crate" >"$folder/sbom.cdx.json"
  tar -C "$scratch" --sort=name --owner=0 --group=0 --mtime=@0 -c "$name" | gzip -n >"$out/$name.tar.gz"
}
basename_of() { case $1 in *=*) echo "${1#*=}" ;; *) echo "${1##*/}" ;; esac; }

# debian_package NAME MACHINE DEPENDS SUMMARY FOLDER: packs a folder of the `archive` of a program for Debian and what comes from it.
debian_package() {
  local name=$1 machine=$2 depends=$3 summary=$4 folder=$5
  local root=$scratch/$name-$machine.root file=$out/${name}_${version}_$machine.deb
  install -D "$folder/$name" "$root/usr/bin/$name"
  install -D -m 644 "$folder/README.md" "$root/usr/share/doc/$name/README.md"
  install -m 644 "$folder/sbom.cdx.json" "$root/usr/share/doc/$name/"
  cat LICENSE "$folder/THIRD-PARTY-NOTICES.txt" >"$root/usr/share/doc/$name/copyright"
  if [ "$name" = polylatch-inspector ]; then
    install -D -m 644 inspector/window/polylatch-inspector.desktop -t "$root/usr/share/applications"
  fi
  mkdir "$root/DEBIAN"
  printf '%s\n' "Package: $name" "Version: $version" "Architecture: $machine" 'Section: admin' 'Priority: optional' \
    'Maintainer: The Polylatch developers' "Installed-Size: $(du -sk "$root/usr" | cut -f 1)" ${depends:+"Depends: $depends"} \
    "Description: $summary" >"$root/DEBIAN/control"
  find "$root" -exec touch -h -d @0 {} +
  SOURCE_DATE_EPOCH=0 dpkg-deb --build --root-owner-group "$root" "$file" >/dev/null
}

# check_windows FILE...: fails if a library or program for Windows needs a library that Windows does not have, or tells a folder of
# this machine.
check_windows() {
  local file folder
  for file; do
    ! x86_64-w64-mingw32-objdump -p "$file" | grep -E 'DLL Name: (libgcc|libstdc|libwinpthread|libssp)' ||
      die "$file: needs a library of the toolchain"
    for folder in "${CARGO_HOME:-$HOME/.cargo}" "$PWD/"; do
      ! grep -aqF -e "$folder" "$file" || die "$file: names a folder of this machine: $folder"
    done
    say "${file##*/}: $(stat -c %s "$file") bytes"
  done
}

# for_windows TARGET: what the GNU toolchain can build. The npm package's part needs a library of Node that comes with the other one.
for_windows() {
  local target=$1 folder
  title "for $target"
  wheel_build "$maturin" "$target" --out "$out" --interpreter "$PYTHON"
  release_build "$target" library -p polylatch-c -p polylatch-cli
  folder=$(release_folder "$target")
  check_windows "$folder"/{polylatch_c.dll,polylatch.exe}
  archive "polylatch-c-$version-$target" polylatch-c "$target" bindings/c/README.md \
    bindings/c/include/polylatch.h=include/polylatch.h "$folder"/polylatch_c.dll=lib/polylatch_c.dll \
    "$folder"/libpolylatch_c.dll.a=lib/libpolylatch_c.dll.a "$folder"/libpolylatch_c.a=lib/libpolylatch_c.a
  archive "polylatch-$version-$target" polylatch-cli "$target" inspector/cli/README.md "$folder/polylatch.exe"
}

# generated_halves LIBRARY: those of the jar, the gems and the Swift package, made from a library that keeps its symbols.
generated_halves() {
  title 'the generated halves of the jar and the gems'
  # The generator is run once.
  [ -n "${POLYLATCH_UNIFFI_BUILT:-}" ] || CARGO_PROFILE_DEV_DEBUG=none bindings/uniffi/build --library "$1"
}

# libraries_for TARGET: the wheel and the C library; the parts of the npm package, of the gem and of the jar are put into
# $scratch/node, $scratch/gem and $scratch/jvm.
libraries_for() {
  local target=$1 folder crate uniffi
  title "libraries for $target"
  if [ "$target" = "$(release_target)" ]; then
    cp "$built"/python/*.whl "$out/"
  else
    wheel_build "$maturin" "$target" --out "$out" --interpreter "$PYTHON"
  fi
  folder=$(release_folder "$target")
  uniffi=$folder/libpolylatch_uniffi.so
  if [ "$target" = "$host" ]; then
    release_build "$target" library -p polylatch-node -p polylatch-c
    release_build "$target" with-symbols -p polylatch-uniffi --lib
    generated_halves "$uniffi"
    # Not where cargo has put it: the next build would take it from there.
    cp "$uniffi" "$scratch/"
    uniffi=$scratch/libpolylatch_uniffi.so
    strip "$uniffi"
  else
    release_build "$target" library -p polylatch-node -p polylatch-c -p polylatch-uniffi
  fi
  tests/packages/natives "$folder"/libpolylatch_{node,c}.so "$uniffi"
  install -D -m 644 "$folder/libpolylatch_node.so" "$scratch/node/${node_name[$target]}.so"
  archive "polylatch-c-$version-$target" polylatch-c "$target" bindings/c/README.md \
    bindings/c/include/polylatch.h=include/polylatch.h "$folder"/libpolylatch_c.so=lib/libpolylatch_c.so \
    "$folder"/libpolylatch_c.a=lib/libpolylatch_c.a
  install -D -m 644 "$uniffi" -t "$scratch/gem/${gem_name[$target]}"
  [ -z "${jna_name[$target]:-}" ] || install -D -m 644 "$uniffi" -t "$scratch/jvm/${jna_name[$target]}"
  for crate in python node uniffi; do
    bindings/notices --sbom "$target" "polylatch-$crate" >"$out/polylatch-$crate-$version-$target.cdx.json"
  done
}

# program_for TARGET: the window, or for musl the command line, which needs no library at all.
program_for() {
  local target=$1 machine=${1%%-*} program=polylatch crate=polylatch-cli needs='' readme=inspector/cli/README.md more=() name
  local summary='distributed locks: run commands under one, see who holds it and who waits'
  if [[ $target != *-musl ]]; then
    program=polylatch-inspector crate=polylatch-inspector needs=$window_needs readme=inspector/window/README.md
    more=(inspector/window/polylatch-inspector.desktop)
    summary='a window on distributed locks'
  fi
  title "$program for $machine"
  # The window has a library beside its program: without --bin it would be built for itself as well.
  release_build "$target" program -p "$crate" --bin "$program"
  tests/packages/natives "$(release_folder "$target")/$program"
  name=$program-$version-$machine-linux
  archive "$name" "$crate" "$target" "$(release_folder "$target")/$program" "$readme" "${more[@]}"
  debian_package "$program" "${debian_name[$machine]}" "$needs" "$summary" "$scratch/$name"
}

# natives_for TARGET...: everything that is compiled for these targets.
natives_for() {
  local target
  for target; do
    case $target in
      *-windows-*) for_windows "$target" ;;
      *)
        libraries_for "$target"
        program_for "$target"
        ;;
    esac
  done
}

# natives_in FOLDER TARGET...: the same, in a target folder of their own.
natives_in() {
  CARGO_TARGET_DIR=$(cargo_target)/$1
  export CARGO_TARGET_DIR
  shift
  natives_for "$@"
}

# for_the_web: the npm package for browsers and edge workers.
for_the_web() {
  title 'the npm package for browsers and edge workers'
  bindings/wasm/install "$scratch/wasm"
  cp "$scratch"/wasm/packages/*.tgz "$out/"
  bindings/notices --sbom wasm32-unknown-unknown polylatch-wasm >"$out/polylatch-wasm-$version.cdx.json"
}

# check_crates: what is in the packages of the crates is all that they need, and compiles with the oldest Rust that they name. Cargo's
# own verification would compile each, with the newest; `cargo publish` does that in any case.
check_crates() {
  local folder=$scratch/packed name oldest with=()
  title 'crates: as they are packed, with the oldest Rust'
  mkdir "$folder"
  for name in "${crates[@]/%/-$version}"; do tar -xzf "$out/$name.crate" -C "$folder"; done
  {
    printf '[workspace]\nresolver = "3"\nmembers = ["*-%s"]\n[patch.crates-io]\n' "$version"
    for name in "${crates[@]}"; do printf '%s.path = "%s-%s"\n' "$name" "$name" "$version"; done
  } >"$folder/Cargo.toml"
  cp Cargo.lock "$folder/"
  oldest=$(sed -n '/^\[workspace.package\]/,/^$/s/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  if have rustup; then
    rustup -q toolchain install "$oldest" --profile minimal --no-self-update >/dev/null 2>&1 || die "rustup could not install Rust $oldest"
    with=(rustup run "$oldest")
  else
    left_out "Rust $oldest" 'there is no rustup to fetch it'
  fi
  (
    cd "$folder"
    export RUSTFLAGS='-D warnings' CARGO_TARGET_DIR=$scratch/crates CARGO_PROFILE_DEV_DEBUG=none CARGO_INCREMENTAL=0
    "${with[@]}" cargo check --quiet --workspace --all-features --exclude polylatch-inspector
    # The toolkit of the window asks for a newer one.
    cargo check --quiet -p polylatch-inspector
  )
  say "passed: the crates as they are packed${with[*]:+, with Rust $oldest}, and that of the window with $(rustc --version)"
}

# The process groups of what runs beside this program.
lanes=()

# lane NAME COMMAND...: runs it beside this program, and puts its name before what it says.
lane() {
  local name=$1
  shift
  set -m
  (set -e; "$@") > >(exec sed -u "s/^/$name: /") 2>&1 &
  lanes+=($!)
  set +m
}

# stop_lanes: with all that they have started.
stop_lanes() {
  local group
  for group in "${lanes[@]}"; do kill -- "-$group" 2>/dev/null || true; done
  lanes=()
}

# lanes_end: waits for all. One that fails ends this program.
lanes_end() {
  local group
  for group in "${lanes[@]}"; do wait "$group" || die 'a package could not be built or does not work; the reason stands above'; done
  lanes=()
}

# build_beside: starts what needs nothing that is built here, in the background. The optimiser at the end of a build keeps only one
# processor busy. Cargo lets one process at a time into a target folder: what is for another processor has a folder of its own, and
# is about as much as all else.
here=()
build_beside() {
  local target elsewhere=()
  for target in "${targets[@]}"; do
    need_release "$target"
    case $target in
      "$host") ;;
      "${host%%-*}"-*) here+=("$target") ;;
      *) elsewhere+=("$target") ;;
    esac
  done
  need_wasm
  [ ${#elsewhere[@]} -eq 0 ] || lane 'other processors' natives_in elsewhere "${elsewhere[@]}"
  lane web for_the_web
}

# build_all: builds the rest and packs what consists of several parts. For the first lock it leaves POLYLATCH_UNIFFI_BUILT and, if
# there is one for this machine, POLYLATCH_PROGRAM.
build_all() {
  local wheel library name jar_built natives=()
  need_java
  need_ruby
  natives_for "$host"
  bindings/uniffi/ruby/pack "$out/polylatch-$version.gem" --source "$(echo "$scratch"/sdist/*)"
  # Keeps a processor busy that the optimiser leaves idle.
  lane 'from sources' tests/packages/try "$out" --only "${sources[0]}" --only "${sources[1]}"
  natives_for "${here[@]}"
  lanes_end
  cp -r bindings/uniffi/.work/jvm/META-INF "$scratch/jvm/"
  for wheel in "$out"/*.whl; do "$PYTHON" bindings/python/tests/check_wheel.py "$wheel" 6000000 Cargo.toml; done

  title 'gems'
  for library in "$scratch"/gem/*/*.so; do
    name=$(basename "$(dirname "$library")")
    bindings/uniffi/ruby/pack "$out/polylatch-$version-$name.gem" "$name" "$library"
  done

  title 'the jar, with the libraries for x86-64 and arm64'
  # With the example in Kotlin, which is tried on it.
  mvn -B -ntp -q -f bindings/uniffi/kotlin/pom.xml -pl library,:kotlin -am "-Dpolylatch.native=$scratch/jvm" package
  # Beside the jar what Maven Central asks for, without the signatures: what it depends on, its sources, and a text to read.
  jar_built=bindings/uniffi/kotlin/library/target/polylatch-$version
  ! grep -E '<parent>|\$\{' "$jar_built.pom" || die "$jar_built.pom: it names what is not published"
  cp "$jar_built".{jar,pom} "$out/"
  jar --create --file "$out/polylatch-$version-sources.jar" --date=1980-01-01T00:00:02Z \
    -C bindings/uniffi/kotlin/library/src/main/kotlin . -C bindings/uniffi/.work/kotlin .
  jar --create --file "$out/polylatch-$version-javadoc.jar" --date=1980-01-01T00:00:02Z -C bindings/uniffi/kotlin README.md

  title 'the Swift package'
  name=polylatch-swift-$version
  bindings/uniffi/swift/pack "$scratch/$name"
  cp LICENSE bindings/uniffi/.work/THIRD-PARTY-NOTICES.txt "$scratch/$name/"
  tar -C "$scratch" --sort=name --owner=0 --group=0 --mtime=@0 -c "$name" | gzip -n >"$out/$name.tar.gz"

  title 'the npm package, with all of them inside'
  for library in "$scratch"/node/*.so; do natives+=("$(basename "$library" .so)=$library"); done
  node bindings/node/scripts/pack.mjs "$scratch/npm" "${natives[@]}"
  node bindings/node/scripts/check-packages.mjs "$scratch/npm"
  cp "$scratch"/npm/*.tgz "$out/"

  export POLYLATCH_UNIFFI_BUILT=yes
  name=$scratch/polylatch-$version-$(uname -m)-linux/polylatch
  [ ! -e "$name" ] || export POLYLATCH_PROGRAM=$name
}

# try_all: each package as a user has it. Much of that is waiting for registries and interpreters, so some run beside others.
try_all() {
  title 'tried as a user has them'
  local beside=('jar on' "$host_gem")
  lane 'jars and gems' tests/packages/try "$out" --only "${beside[0]}" --only "${beside[1]}"
  tests/packages/try "$out" --except "${sources[0]}" --except "${sources[1]}" --except "${beside[0]}" --except "${beside[1]}"
  lanes_end
}
