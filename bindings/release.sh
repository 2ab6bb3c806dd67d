# shellcheck shell=bash
# Sourced, after tests/provision.sh, by what builds a native library or program as it is released.

# The C library that what is released runs on at least: that of 2012, older than every Linux that Node 20 or Python 3.9 run on.
readonly OLDEST_GLIBC=2.17

# release_target: prints the target, as Rust calls it, that is this machine.
release_target() { "${RUSTC:-rustc}" -vV | sed -n 's/^host: //p'; }

# release_flags TARGET: sets RUSTFLAGS, so that nothing of what is built tells in which folder that was.
release_flags() {
  local here
  here=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"workspace_root":"\([^"]*\)".*/\1/p')
  export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-${HOME:?}/.cargo}=/cargo --remap-path-prefix=$here=/polylatch"
  case $1 in
    # A library that is loaded uses the C library of the process.
    *-musl) RUSTFLAGS+=' -C target-feature=-crt-static' ;;
    *-linux-gnu) RUSTFLAGS+=" -C link-arg=$(unwinder "$1")" ;;
  esac
}

# unwinder TARGET: prints the path of a library that stands for libgcc_s while something is linked. Without it zig would put an
# unwinder of its own into each. Python before 3.14 ends threads that come too late by unwinding their stacks with libgcc_s, and
# two unwinders on one stack end the process. A program would do without, but would be compiled with other flags than the libraries:
# everything that they have in common would be compiled twice.
unwinder() {
  local folder stub
  folder=$(cargo_target)/$1/unwinder
  stub=$folder/libgcc_s.so.1
  if [ ! -e "$stub" ]; then
    mkdir -p "$folder"
    # What Rust's standard library calls, with the versions that these have had since GCC 4.2.
    local -A functions=(
      [GCC_3.0]='DeleteException GetDataRelBase GetGR GetIP GetLanguageSpecificData GetRegionStart GetTextRelBase RaiseException
        Resume SetGR SetIP'
      [GCC_3.3]='Backtrace FindEnclosingFunction GetCFA'
      [GCC_4.2.0]='GetIPInfo'
    )
    local version name
    for version in "${!functions[@]}"; do
      printf '%s {' "$version" >>"$folder/versions.new"
      for name in ${functions[$version]}; do
        printf 'void _Unwind_%s(void) {}\n' "$name" >>"$folder/unwinder.c"
        printf ' _Unwind_%s;' "$name" >>"$folder/versions.new"
      done
      printf ' };\n' >>"$folder/versions.new"
    done
    "$CARGO_ZIGBUILD_ZIG_PATH" cc -target "${1%%-*}-linux-gnu.$OLDEST_GLIBC" -shared -nostdlib -fPIC -Wl,-soname,libgcc_s.so.1 \
      "-Wl,--version-script=$folder/versions.new" -o "$stub.new" "$folder/unwinder.c" && mv "$stub.new" "$stub" ||
      die 'zig could not build what stands for libgcc_s'
    rm "$folder"/*.new "$folder/unwinder.c"
  fi
  printf '%s\n' "$stub"
}

# release_build TARGET library|with-symbols|program ARGUMENTS...: has cargo build that for the target; the rest are arguments of
# `cargo build`. It stands in release_folder then. One library that keeps its symbols, or one program, at a time.
release_build() (
  local target=$1 kind=$2 cargo=(cargo) verb=(build) last=()
  shift 2
  release_flags "$target"
  case $target in *-linux-*) cargo=(cargo-zigbuild) verb=(zigbuild) ;; esac
  # Only what is linked is told: what it has in common with others is compiled once.
  case $kind-$target in
    # With a C library inside.
    program-*-linux-musl) last=(-C target-feature=+crt-static) ;;
    with-symbols-*) last=(-C strip=none) ;;
  esac
  if [ ${#last[@]} -gt 0 ]; then
    verb=(rustc)
    last=(-- "${last[@]}")
  fi
  case $target in *-linux-gnu) target=$target.$OLDEST_GLIBC ;; esac
  "${cargo[@]}" "${verb[@]}" --locked --profile dist --target "$target" "$@" "${last[@]}"
)

# python_notices: puts the licences of what is compiled in where maturin reads them: all at once, because another package may be built
# from them at this moment.
python_notices() {
  local folder file new
  folder=$(dirname "${BASH_SOURCE[0]}")
  file=$folder/python/THIRD-PARTY-NOTICES.txt
  new=$file.$BASHPID
  "$folder/notices" polylatch-python >"$new" || { rm -f "$new"; die 'the licences of the Python package are not known'; }
  mv "$new" "$file"
}

# wheel_build MATURIN TARGET ARGUMENTS...: has maturin build the Python package for the target; the rest are arguments of
# `maturin build`.
wheel_build() (
  local maturin=$1 target=$2 told
  shift 2
  python_notices
  cd "$(dirname "${BASH_SOURCE[0]}")/python" || exit 1
  told=$(mktemp -d)
  trap 'rm -rf "$told"' EXIT
  ../notices --sbom "$target" polylatch-python >"$told/polylatch.cdx.json"
  release_flags "$target"
  case $target in
    *-linux-gnu) set -- --compatibility manylinux2014 "$@" ;;
    *-linux-musl) set -- --compatibility musllinux_1_2 "$@" ;;
  esac
  case $target in
    *-linux-*)
      REAL_CARGO=$(command -v cargo) || die 'cargo is not on PATH'
      export REAL_CARGO OLDEST_GLIBC PATH="$PWD/../with-zig:$PATH"
      ;;
  esac
  "$maturin" build --locked --target "$target" --sbom-include "$told/polylatch.cdx.json" "$@"
)

# release_folder TARGET: prints the folder in which release_build leaves what it builds.
release_folder() { printf '%s/%s/dist\n' "$(cargo_target)" "$1"; }

# need_release TARGET: installs what release_build needs for that target.
need_release() {
  need_compilers
  case $1 in
    *-linux-*) need_zig ;;
    x86_64-pc-windows-gnu)
      need_commands x86_64-w64-mingw32-gcc=gcc-mingw-w64-x86-64 x86_64-w64-mingw32-g++=g++-mingw-w64-x86-64
      ;;
  esac
  [ "$1" = "$(release_target)" ] || ! have rustup || rustup -q target add "$1" >/dev/null 2>&1 ||
    die "rustup could not add the target $1"
}

# need_zig: a C compiler that links for older C libraries and other processors, and what has cargo use it: packages of Python's
# registry, in the tests' cache. Leaves cargo-zigbuild on PATH.
need_zig() {
  local home="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests/zig-0.17.1"
  if [ ! -e "$home/is-ready" ]; then
    need_python
    mkdir -p "${home%/*}"
    (
      # Parts of the tests that run beside each other wait for the one that fetches it.
      flock 9
      [ ! -e "$home/is-ready" ] || exit 0
      say 'Fetching: zig, cargo-zigbuild'
      rm -rf "$home"
      "$PYTHON" -m venv "$home" &&
        "$home/bin/pip" install -q --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.0 &&
        touch "$home/is-ready"
    ) 9>"$home.lock" || die 'pip could not install ziglang and cargo-zigbuild'
  fi
  case ":$PATH:" in
    *":$home/bin:"*) ;;
    # Behind everything else: it brings a python of its own.
    *) PATH="$PATH:$home/bin" ;;
  esac
  export PATH CARGO_ZIGBUILD_ZIG_PATH="$home/bin/python-zig"
}
