# shellcheck shell=bash
# Sourced by tests/run and examples/first-lock: installs what is missing, and nothing else.
#
# Debian and its relatives only (apt-get); elsewhere it says what to install by hand.

# The oldest Rust that builds the whole workspace: `rust-version` in inspector/window/Cargo.toml. Without
# the window, 1.90 is enough.
readonly MIN_RUST=1.95

# The oldest Node that the package `polylatch` supports: `engines` in bindings/node/npm/package.json.
readonly MIN_NODE=20.4

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# left_out WHAT WHY: says that a part of the tests cannot run here; tests/run repeats it at its end, so that nobody takes it
# for one that passed.
left_out() {
  say "$1 is left out: $2"
  [ -z "${POLYLATCH_LEFT_OUT:-}" ] || printf '%s: %s\n' "$1" "$2" >>"$POLYLATCH_LEFT_OUT"
}

# at_least VERSION MINIMUM: true if VERSION is not older.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

# need_commands COMMAND=PACKAGE...: installs the packages whose command is missing.
need_commands() {
  local pair packages=()
  for pair in "$@"; do
    have "${pair%%=*}" || packages+=("${pair#*=}")
  done
  # One package may bring several commands.
  if [ ${#packages[@]} -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    install_packages "${packages[@]}"
  fi
}

# packages_of RELEASE FOLDER [OPTION...]: reads the list of another Debian release into FOLDER, and leaves the options with
# which apt-get uses it in the array `options`.
packages_of() {
  local release=$1 state=$2 archive keys=/usr/share/keyrings/debian-archive-keyring.gpg
  shift 2
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  # shellcheck disable=SC2016 # apt-get reads the variables
  archive=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "main" && $1 !~ /security/ { print $1; exit }')
  printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$archive" "$release" >"$state/sources.list"
  options=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache" "$@" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update
}

# need_consul: leaves a `consul` program on PATH, unless POLYLATCH_TEST_CONSUL names one. Debian 12 has none; the package of the release before
# runs there as it is, so it is unpacked (not installed) into the tests' cache.
need_consul() {
  if [ -n "${POLYLATCH_TEST_CONSUL:-}" ]; then
    have "$POLYLATCH_TEST_CONSUL" || die "POLYLATCH_TEST_CONSUL=$POLYLATCH_TEST_CONSUL is no program"
    return
  fi
  local cache="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests"
  have consul && return
  case ":$PATH:" in
    *":$cache:"*) ;;
    *) PATH="$PATH:$cache" ;;
  esac
  export PATH
  hash -r
  have consul && return
  have apt-get || die "missing here, and there is no apt-get to fetch it: consul (put one on PATH)"
  refresh_packages
  say "Fetching: consul"
  mkdir -p "$cache"
  (
    set -e
    state=$(mktemp -d)
    trap 'rm -rf "$state"' EXIT
    packages_of bullseye "$state"
    cd "$state"
    apt-get "${options[@]}" -qq download consul
    dpkg-deb -x consul_*.deb unpacked
    install -m755 unpacked/usr/bin/consul "$cache/consul"
  ) || die "consul could not be fetched from Debian's archive; put a consul program (1.8 or later) on PATH"
  hash -r
  have consul || die "there is no consul program after fetching it; put one on PATH"
}

# need_etcd: leaves `etcd` and `etcdctl` on PATH, unless POLYLATCH_TEST_ETCD names their folder. The packages are unpacked (not
# installed) into the tests' cache: the one of the server would start a service.
need_etcd() {
  if [ -n "${POLYLATCH_TEST_ETCD:-}" ]; then
    [ -x "$POLYLATCH_TEST_ETCD/etcd" ] || die "POLYLATCH_TEST_ETCD=$POLYLATCH_TEST_ETCD has no program etcd"
    return
  fi
  local cache="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests"
  case ":$PATH:" in
    *":$cache:"*) ;;
    *) PATH="$PATH:$cache" ;;
  esac
  export PATH
  hash -r
  have etcd && have etcdctl && return
  have apt-get || die "missing here, and there is no apt-get to fetch them: etcd and etcdctl (put them on PATH)"
  refresh_packages
  say "Fetching: etcd"
  mkdir -p "$cache"
  (
    set -e
    state=$(mktemp -d)
    trap 'rm -rf "$state"' EXIT
    cd "$state"
    apt-get -o APT::Sandbox::User=root -qq download etcd-server etcd-client
    for package in *.deb; do dpkg-deb -x "$package" unpacked; done
    install -m755 unpacked/usr/bin/etcd unpacked/usr/bin/etcdctl "$cache"
  ) || die "etcd could not be fetched from Debian's archive; put etcd and etcdctl (3.4 or later) on PATH"
  hash -r
  have etcd && have etcdctl || die "there is no etcd program after fetching it; put one on PATH"
}

# need_postgres: PgBouncer, and the programs of a PostgreSQL server below /usr/lib/postgresql; unless
# POLYLATCH_TEST_POSTGRES names their folder. The package would create a cluster of its own; that is turned off before it is installed.
need_postgres() {
  local programs
  if [ -n "${POLYLATCH_TEST_POSTGRES:-}" ]; then
    [ -x "$POLYLATCH_TEST_POSTGRES/postgres" ] ||
      die "POLYLATCH_TEST_POSTGRES=$POLYLATCH_TEST_POSTGRES has no program postgres"
    return
  fi
  have pgbouncer || [ -x /usr/sbin/pgbouncer ] || install_packages pgbouncer
  for programs in /usr/lib/postgresql/*/bin/postgres; do [ ! -x "$programs" ] || return 0; done
  if ! dpkg -s postgresql-common >/dev/null 2>&1; then
    install_packages postgresql-common
    as_root sed -i 's/^#* *create_main_cluster *=.*/create_main_cluster = false/' \
      /etc/postgresql-common/createcluster.conf
  fi
  install_packages postgresql
}

# need_mariadb: the programs of a MariaDB server and its command line; unless POLYLATCH_TEST_MARIADB names their folder. These
# packages start no server.
need_mariadb() {
  if [ -n "${POLYLATCH_TEST_MARIADB:-}" ]; then
    [ -x "$POLYLATCH_TEST_MARIADB/mariadbd" ] ||
      die "POLYLATCH_TEST_MARIADB=$POLYLATCH_TEST_MARIADB has no program mariadbd"
    return
  fi
  [ -x /usr/sbin/mariadbd ] && have mariadb || install_packages mariadb-server-core mariadb-client-core
}

# need_zookeeper: ZooKeeper's archives, and the libraries of others that share locks with us: Curator (with a Java that compiles)
# and kazoo. These packages start no server. POLYLATCH_TEST_ZOOKEEPER is a class path of another server.
need_zookeeper() {
  local packages=() archive
  have javac || packages+=(openjdk-17-jdk-headless)
  [ -e /usr/lib/python3/dist-packages/kazoo ] || packages+=(python3-kazoo)
  for archive in zookeeper:libzookeeper-java slf4j-simple:libslf4j-java curator-recipes:libcurator-recipes-java; do
    [ -e "/usr/share/java/${archive%%:*}.jar" ] || packages+=("${archive#*:}")
  done
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
}

# need_go_neighbour: the modules of the program in Go that shares locks on etcd with us. The test builds it.
need_go_neighbour() {
  (cd core/tests/it/neighbours/etcd_concurrency && GOTOOLCHAIN=local go build -mod=readonly -o /dev/null .) ||
    die 'the program core/tests/it/neighbours/etcd_concurrency cannot be built'
}

# need_actionlint: what checks workflows, in the tests' cache, in a version that Go 1.18 builds. Leaves it on PATH.
need_actionlint() {
  local home="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests/actionlint-1.7.7"
  # It has shell scripts within workflows checked by shellcheck.
  need_commands go=golang-go shellcheck=shellcheck
  [ -x "$home/actionlint" ] || GOTOOLCHAIN=local GOBIN=$home go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 ||
    die 'go could not install actionlint'
  PATH="$home:$PATH"
}

# need_cargo_deny: what checks licences, sources and advisories of crates, compiled into the tests' cache once. Leaves it on PATH.
need_cargo_deny() {
  local home="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests/cargo-deny-0.20.2"
  if [ ! -x "$home/bin/cargo-deny" ]; then
    say 'Compiling: cargo-deny'
    cargo install --quiet --locked --version 0.20.2 --root "$home" cargo-deny || die 'cargo could not install cargo-deny'
  fi
  PATH="$PATH:$home/bin"
}

# need_servers: other servers that speak as Redis does, Redis 8 and Valkey 8 of Debian 13, unpacked (not installed) into the
# tests' cache with the libraries that they need. Sets OTHER_SERVERS to their programs; returns 1 where they cannot be
# fetched, with the reason in OTHER_SERVERS_MISSING.
need_servers() {
  local cache="${XDG_CACHE_HOME:-${HOME:?}/.cache}/polylatch-tests/servers" log
  # shellcheck disable=SC2034 # whoever sources this uses them
  OTHER_SERVERS=("$cache/redis-8" "$cache/valkey-8") OTHER_SERVERS_MISSING='there is no apt-get to fetch them'
  [ ! -e "$cache/is-ready" ] || return 0
  have apt-get && have dpkg-deb || return 1
  say 'Fetching: Redis 8 and Valkey 8'
  rm -rf "$cache"
  mkdir -p "$cache"
  log=$(mktemp)
  (
    set -e
    state=$(mktemp -d)
    trap 'rm -rf "$state"' EXIT
    packages_of trixie "$state" -o Dir::State::status=/dev/null
    cd "$state"
    apt-get "${options[@]}" -qq download redis-tools redis-server valkey-tools valkey-server libatomic1 libc6 libcap2 \
      libgcc-s1 libjemalloc2 liblzf1 libssl3t64 libstdc++6 libsystemd0 libzstd1 zlib1g
    for package in *.deb; do dpkg-deb -x "$package" "$cache"; done
    for server in redis valkey; do
      # Its own loader and libraries: they are newer than this system's.
      printf '#!/bin/sh\nexec %s --library-path %s --argv0 %s %s "$@"\n' \
        "'$(find "$cache"/usr/lib* -name 'ld-linux-*.so.*' | head -n 1)'" "'$(echo "$cache"/usr/lib/*-linux-gnu*)'" \
        "$server-server" "'$cache/usr/bin/$server-server'" >"$cache/$server-8"
      chmod 755 "$cache/$server-8"
      "$cache/$server-8" --version
    done
    touch "$cache/is-ready"
  ) >"$log" 2>&1 || {
    OTHER_SERVERS_MISSING="they could not be fetched from Debian's archive ($(tail -n 1 "$log"))"
    rm -f "$log"
    return 1
  }
  rm -f "$log"
}

# need_compilers: a C compiler (SQLite and the cryptography are compiled from C) with its headers,
# and the certificates that a download is checked with.
need_compilers() {
  local packages=()
  have cc && echo '#include <stdlib.h>' | cc -E -xc - >/dev/null 2>&1 || packages+=(gcc libc6-dev)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -e /etc/pki/tls/cert.pem ] ||
    [ -e /etc/ssl/cert.pem ] || packages+=(ca-certificates)
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
  need_rust
}

# need_window: a virtual screen, hands for it, and what a window loads at run time: X11 and OpenGL.
need_window() {
  local packages=() pair
  need_commands Xvfb=xvfb xdotool=xdotool
  for pair in libX11.so.6=libx11-6 libX11-xcb.so.1=libx11-xcb1 libXcursor.so.1=libxcursor1 \
    libXi.so.6=libxi6 libxkbcommon-x11.so.0=libxkbcommon-x11-0 libGL.so.1=libgl1; do
    [ -n "$(find /usr/lib /lib -name "${pair%%=*}*" -print -quit 2>/dev/null)" ] || packages+=("${pair#*=}")
  done
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
}

# need_fonts: fonts for Chinese, Japanese, Hebrew, Arabic, Hindi, Thai and emoji, and what finds them.
need_fonts() {
  local packages=() package
  for package in libfontconfig1 fonts-dejavu-core fonts-wqy-microhei fonts-tlwg-loma-otf fonts-lohit-deva \
    fonts-noto-color-emoji; do
    dpkg -s "$package" >/dev/null 2>&1 || packages+=("$package")
  done
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
}

# need_java: a Java that compiles, and Maven. The jar is for Java 11; the tests need 17, as the servlet container does.
need_java() {
  local packages=()
  have javac || packages+=(openjdk-17-jdk-headless)
  have mvn || packages+=(maven)
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
}

# need_ruby: Ruby 3.0 or newer with its foreign function interface, what its tests are written with, and the drivers of databases.
need_ruby() {
  local packages=()
  have gem || packages+=(ruby)
  [ ${#packages[@]} -eq 0 ] && ruby -e '%w[ffi minitest rack puma pg mysql2 sqlite3].each { |name| require name }' 2>/dev/null ||
    packages+=(ruby-ffi ruby-minitest ruby-rack puma ruby-pg ruby-mysql2 ruby-sqlite3)
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
}

# need_swift: a Swift compiler, 5.9 or newer; returns 1 where there is none to be had. Debian has one from release 13 on;
# on an older one, a whole Debian 13 is unpacked into the tests' cache (2.6 GB). Sets SWIFT_ROOT, for swift_in, to where;
# or SWIFT_MISSING to why there is none.
need_swift() {
  local found log
  SWIFT_ROOT=
  found=$(swift --version 2>/dev/null | sed -n 's/.*Swift version \([0-9.]*\).*/\1/p') || found=
  [ -z "$found" ] || ! at_least "$found" 5.9 || return 0
  if apt_has swiftlang 5.9; then
    install_packages swiftlang g++
    return
  fi
  # shellcheck disable=SC2034 # whoever sources this tells it
  SWIFT_MISSING='there is no Swift 5.9 or newer, and only root can unpack a Debian 13 with one'
  have apt-get && [ "$(id -u)" = 0 ] || return 1
  SWIFT_MISSING=$(unshare --mount mount -t tmpfs none /mnt 2>&1) || return 1
  SWIFT_ROOT=${XDG_CACHE_HOME:-$HOME/.cache}/polylatch-tests/debian-13
  [ ! -e "$SWIFT_ROOT/is-ready" ] || return 0
  need_commands debootstrap=debootstrap
  say "Unpacking Debian 13 with Swift into $SWIFT_ROOT"
  rm -rf "$SWIFT_ROOT"
  mkdir -p "$SWIFT_ROOT"
  log=$(mktemp -d)
  debootstrap --variant=minbase --include=ca-certificates trixie "$SWIFT_ROOT" >"$log/log" 2>&1 &&
    swift_in "$log" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      swiftlang g++ libc6-dev >>"$log/log" 2>&1 &&
    swift_in "$log" apt-get clean || { tail -n 20 "$log/log"; rm -rf "$log"; die 'Debian 13 with Swift could not be unpacked'; }
  rm -rf "$log"
  touch "$SWIFT_ROOT/is-ready"
}

# swift_in FOLDER COMMAND...: runs it there, where the compiler is. Of the rest of this machine it sees only FOLDER.
swift_in() {
  local folder=$1
  shift
  if [ -z "$SWIFT_ROOT" ]; then
    env -C "$folder" "$@"
    return
  fi
  mkdir -p "$SWIFT_ROOT$folder"
  # What is mounted goes with the process.
  # shellcheck disable=SC2016 # the inner shell expands these
  unshare --mount sh -c '
    root=$1 folder=$2
    shift 2
    mount -t proc proc "$root/proc" && mount --bind /dev "$root/dev" && mount --bind "$folder" "$root$folder" &&
      exec chroot "$root" env -C "$folder" HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "TMPDIR=$folder" "$@"
  ' sh "$SWIFT_ROOT" "$folder" "$@"
}

# swift_program LIBRARIES PROGRAM: prints, a word a line, what runs a program that Swift has built as any other of this
# system's, with the libraries in that folder.
swift_program() {
  if [ -z "$SWIFT_ROOT" ]; then
    printf '%s\n' "$(command -v env)" "LD_LIBRARY_PATH=$1" "$2"
    return
  fi
  # It needs libraries that are newer than this system's.
  printf '%s\n' "$(echo "$SWIFT_ROOT"/lib*/ld-linux-*.so.*)" --library-path \
    "$(echo "$SWIFT_ROOT"/usr/lib/*-linux-gnu):$SWIFT_ROOT/usr/libexec/swift/lib/swift/linux:$1" "$2"
}

# The oldest Python that the package runs on: `requires-python` in its pyproject.toml.
readonly MIN_PYTHON=3.9

# need_python: sets PYTHON to an interpreter that is new enough and can make virtual environments.
need_python() {
  python_is_usable && return
  install_packages python3 python3-venv
  python_is_usable || die "no Python $MIN_PYTHON or newer with venv; install python3 and python3-venv"
}

python_is_usable() {
  local found
  PYTHON=$(command -v python3) || return 1
  found=$("$PYTHON" -c 'import ensurepip, venv, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) &&
    at_least "$found" "$MIN_PYTHON"
}

# need_rust: leaves a cargo and rustc that are new enough first on PATH.
need_rust() {
  # Where rustup puts it, for shells that were not told.
  case ":$PATH:" in
    *":${HOME:-}/.cargo/bin:"*) ;;
    *) PATH="$PATH:${HOME:-}/.cargo/bin" ;;
  esac
  rust_is_new_enough && return
  local found compiler packages
  found=$(rustc --version 2>/dev/null || true)
  say "Rust $MIN_RUST or newer is needed${found:+, this is $found}."
  for compiler in rustc-web rustc; do
    apt_has "$compiler" "$MIN_RUST" || continue
    # Debian's package names: a newer compiler kept for browsers, and the ordinary one.
    case $compiler in
      rustc-web) packages="rustc-web cargo-web rustfmt-web $(apt_if_there rust-web-clippy)" ;;
      rustc) packages="rustc cargo rustfmt $(apt_if_there rust-clippy)" ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    install_packages $packages
    # An older toolchain may stand earlier on PATH; a mix of two does not work.
    PATH="/usr/bin:$PATH"
    export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc
    hash -r
    rust_is_new_enough && return
  done
  die "no Rust $MIN_RUST or newer in the package sources; install cargo, rustc, rustfmt and clippy"
}

rust_is_new_enough() {
  local cargo rustc
  # From the top folder, because rustup answers per folder.
  cargo=$(cargo --version 2>/dev/null) && rustc=$("${RUSTC:-rustc}" --version 2>/dev/null) &&
    at_least "$(version_of "$cargo")" "$MIN_RUST" && at_least "$(version_of "$rustc")" "$MIN_RUST"
}

# version_of "cargo 1.95.0 (f2d3ce0bd 2026-03-21)" prints 1.95.0.
version_of() { local words; read -ra words <<<"$1"; printf '%s\n' "${words[1]:-0}"; }

# The version of a package apt would install; empty if there is none.
apt_candidate() {
  have apt-cache || return 0
  LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \((none)\)\?//p'
}
apt_has() {
  refresh_packages
  local version
  version=$(apt_candidate "$1")
  [ -n "$version" ] && at_least "${version#*:}" "$2"
}
apt_if_there() { [ -z "$(apt_candidate "$1")" ] || printf '%s\n' "$1"; }

# need_node: leaves a node and npm that are new enough first on PATH.
need_node() {
  have npm && node_is_new_enough && return
  local found machine home
  found=$(node --version 2>/dev/null || true)
  say "Node $MIN_NODE or newer and npm are needed${found:+, this is $found}."
  # Debian's may be too old for the package, but it is good enough to fetch a newer one.
  have npm || install_packages npm
  node_is_new_enough && return
  case $(uname -s)-$(uname -m) in
    Linux-x86_64) machine=linux-x64 ;;
    Linux-aarch64) machine=linux-arm64 ;;
    *) die "no Node $MIN_NODE or newer for this machine; install one" ;;
  esac
  home=${XDG_CACHE_HOME:-$HOME/.cache}/polylatch/node
  mkdir -p "$home"
  # Node and npm as ordinary packages that run nothing when they are installed.
  npm install --prefix "$home" --ignore-scripts --no-audit --no-fund --loglevel=error \
    "node-$machine@24" npm@11 || die 'npm could not fetch a newer Node'
  PATH="$home/node_modules/node-$machine/bin:$home/node_modules/.bin:$PATH"
  hash -r
  node_is_new_enough || die "the Node in $home does not run here"
}

node_is_new_enough() {
  local version
  version=$(node --version 2>/dev/null) && at_least "${version#v}" "$MIN_NODE"
}

# as_root COMMAND...: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo -- "$@"
  fi
}
can_be_root() {
  [ "$(id -u)" -eq 0 ] || { have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

# The list of packages, once per run: a fresh machine has none, an old one names gone files.
refresh_packages() {
  [ -z "${packages_are_fresh:-}" ] || return 0
  packages_are_fresh=yes
  if have apt-get && can_be_root; then
    as_root flock /tmp/polylatch-install.lock apt-get -qq update || say "The package list could not be refreshed; using the old one."
  fi
}

# install_packages PACKAGE...: by apt-get, without starting the services that come with them.
install_packages() {
  have apt-get || die "missing here, and there is no apt-get to install it: $*"
  can_be_root || die "missing here; as root, run: apt-get install $*"
  refresh_packages
  say "Installing: $*"
  # shellcheck disable=SC2016 # the inner shell expands these
  # Parts that run beside each other install one after the other.
  as_root flock /tmp/polylatch-install.lock sh -c '
    set -eu
    policy=/usr/sbin/policy-rc.d
    log=$(mktemp)
    made=
    trap "rm -f \"\$log\" \$made" EXIT
    if [ ! -e "$policy" ]; then
      made=$policy
      printf "#!/bin/sh\nexit 101\n" >"$policy"
      chmod 755 "$policy"
    fi
    # --no-remove: what is installed stays; a conflict is for its owner to solve.
    if ! DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
      --no-remove "$@" </dev/null >"$log" 2>&1; then
      cat "$log"
      exit 1
    fi
    # The tests start servers of their own; the package would start one with every boot.
    for package in "$@"; do
      if [ "$package" = redis-server ] && [ -d /run/systemd/system ]; then
        systemctl -q disable redis-server
      fi
    done
  ' sh "$@" || die "apt-get could not install: $*"
  hash -r
}

# cargo_target: prints the folder in which cargo builds.
cargo_target() {
  cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# workspace_version: prints the version that all packages have; from the top folder.
workspace_version() { sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# start_redis FOLDER [PREFIX...]: a Redis on FOLDER/redis.sock that keeps nothing, run by PREFIX if there is one. Sets redis to
# its process id: whoever starts it ends it.
start_redis() {
  local folder=$1
  shift
  "$@" redis-server --port 0 --unixsocket "$folder/redis.sock" --save '' --dir "$folder" >"$folder/redis.log" 2>&1 &
  redis=$!
  until [ -S "$folder/redis.sock" ]; do
    kill -0 "$redis" 2>/dev/null || die "no Redis: $(tail -n3 "$folder/redis.log")"
    sleep 0.05
  done
}

# need_wasm: makes Rust compile for JavaScript hosts, with a standard library that is built along: small, and without
# the words of panics, which nobody would read there; that is a seventh of what a page loads. Sets WASM_CARGO (the cargo
# for that), WASM_FLAGS (what else `build` needs) and WASM_FOLDER (below the target folder: two compilers must not share
# one): rustup's compiler and sources where there is rustup, otherwise Debian's.
need_wasm() {
  # Only unstable options can ask for it. RUSTFLAGS would take the place of those of the target.
  local build=(env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS RUSTC_BOOTSTRAP=1
    "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS=-Zunstable-options -Cpanic=immediate-abort")
  # shellcheck disable=SC2034 # whoever sources this uses them
  WASM_FLAGS=(-Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size)
  WASM_CARGO=("${build[@]}" cargo) WASM_FOLDER=/web
  has_rust_sources && return
  if have rustup && rustup component add rust-src >/dev/null 2>&1 && has_rust_sources; then return; fi
  install_packages rustc-web cargo-web rust-web-src rust-web-llvm lld
  WASM_CARGO=("${build[@]}" RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld /usr/bin/cargo)
  WASM_FOLDER=/web-debian
}
has_rust_sources() {
  local rustc=${RUSTC:-rustc}
  [ -e "$("$rustc" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ] &&
    RUSTC_BOOTSTRAP=1 "$rustc" -Zunstable-options -Cpanic=immediate-abort --print cfg >/dev/null 2>&1
}
