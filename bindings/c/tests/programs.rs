//! Programs in other languages, built against the committed header and the built library, and run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use polylatch_test_services::TempDir;
use polylatch_test_services::redis::RedisServer;
use serde_json::Value;

/// Where the libraries are. Cargo builds a package's C libraries for `cargo build` alone, not for its
/// tests, so the first who asks builds them.
fn libraries() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        // …/target/debug/deps/programs-…
        let debug = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // Cargo has told these tests about their crate. A build script that reads that would run again, and most of the workspace
        // would be compiled a second time here, and a third time when cargo is called next.
        for (name, _) in std::env::vars_os() {
            if name
                .to_str()
                .is_some_and(|name| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_"))
            {
                cargo.env_remove(name);
            }
        }
        let status = cargo
            // Of the whole workspace, so that nothing of what the tests have built is built another time.
            .args(["build", "--locked", "--quiet", "--workspace", "--lib", "--target-dir"])
            .arg(debug.parent().unwrap())
            .current_dir(top())
            .status()
            .unwrap();
        assert!(status.success(), "the libraries could not be built");
        debug
    });
    &BUILT
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn header() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/polylatch.h")
}

fn library() -> PathBuf {
    let name = if cfg!(target_os = "macos") { "libpolylatch_c.dylib" } else { "libpolylatch_c.so" };
    libraries().join(name)
}

/// Runs a command to its end and returns what it printed; panics with everything if it failed.
fn run(command: &mut Command) -> String {
    let output = command.env("LD_LIBRARY_PATH", libraries()).output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; tests/run installs what is missing");
    });
    let (printed, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{told}", output.status);
    printed.into_owned()
}

/// Builds a C++ program, and returns it with the folder in which it lives.
fn cpp(source: &Path) -> (TempDir, PathBuf) {
    build("c++", &["-std=c++17"], source)
}

/// Builds a program by this compiler, against the header and the library.
fn build(compiler: &str, flags: &[&str], source: &Path) -> (TempDir, PathBuf) {
    let dir = TempDir::new();
    let program = dir.path().join("program");
    run(Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(flags)
        .args(["-pthread", "-I"])
        .arg(header().parent().unwrap())
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(libraries())
        .args(["-lpolylatch_c", "-ldl"]));
    (dir, program)
}

#[test]
fn a_c_caller_gets_what_the_header_says_on_every_store() {
    let (dir, program) = cpp(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi.cpp"));
    let redis = RedisServer::start();
    let sqlite = format!("sqlite:{}", dir.path().join("locks.db").display());
    let printed = run(Command::new(&program).arg("memory:abi").arg(sqlite).arg(redis.url()));
    println!("{printed}");
    run(Command::new(&program).arg("--away").arg(redis.url()).arg(redis.pid().to_string()));
    assert_eq!(printed.lines().filter(|line| line.starts_with("ok")).count(), 3, "{printed}");
}

/// A line for each case of the file that the tests of all languages read, and what `sql.cpp` has to print for it.
fn statements() -> (String, Vec<String>) {
    let file = std::fs::read_to_string(top().join("tests/conformance/sql.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&file).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| {
        let parts = value.as_array().unwrap().iter();
        // A list of pairs is one of columns and operators in turn.
        let flat = parts.flat_map(|part| part.as_array().cloned().unwrap_or_else(|| vec![part.clone()]));
        flat.map(|part| text(&part)).collect::<Vec<_>>().join(",")
    };
    let asked = |case: &Value| match text(&case["make"]).as_str() {
        "transaction_lock" => vec![text(&case["name"]), text(&case["schema"])],
        "conditional_update" => {
            vec![text(&case["table"]), list(&case["changes"]), list(&case["conditions"]), list(&case["keys"])]
        }
        _ => vec![text(&case["table"]), text(&case["column"]), list(&case["set"]), list(&case["keys"])],
    };
    let line = |case: &Value| {
        let mut fields = vec![text(&case["make"]), text(&case["dialect"])];
        fields.extend(asked(case));
        fields.join("\t")
    };
    let statement = |sql: &Value, parameters: &Value| {
        let parameters = parameters.as_array().into_iter().flatten().map(|one| format!("|{}", text(one)));
        format!("{}{}", sql.as_str().unwrap_or("-"), parameters.collect::<String>())
    };
    let wanted = |case: &Value| {
        let expect = &case["expect"];
        if let Some(code) = expect["error"].as_str() {
            return format!("error\t{code}\t{}", text(&expect["message"]));
        }
        let bound = |part: &str| statement(&expect[part]["sql"], &expect[part]["values"]);
        [
            statement(&expect["sql"], &expect["parameters"]),
            statement(&expect["probe_sql"], &expect["probe_parameters"]),
            bound("prepare"),
            bound("take"),
            bound("fence"),
            if expect["rows_tell"] == false { "silent" } else { "tells" }.to_owned(),
        ]
        .join("\t")
    };
    let asked: String = cases.iter().map(|case| line(case) + "\n").collect();
    (asked, cases.iter().map(wanted).collect())
}

#[test]
fn the_statements_are_those_of_every_language() {
    let (dir, program) = cpp(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql.cpp"));
    let (asked, wanted) = statements();
    let file = dir.path().join("asked");
    std::fs::write(&file, asked).unwrap();
    let printed = run(Command::new(program).stdin(std::fs::File::open(file).unwrap()));
    assert!(wanted.len() > 50);
    for (printed, wanted) in printed.lines().zip(&wanted) {
        assert_eq!(printed, wanted);
    }
    assert_eq!(printed.lines().count(), wanted.len());
}

#[test]
fn work_in_a_transaction_is_done_once() {
    let (dir, program) = cpp(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs.cpp"));
    assert_eq!(run(Command::new(program).arg(dir.path().join("app.db"))), "ok\n");
}

#[test]
fn the_header_is_c_as_well_as_cpp() {
    let dir = TempDir::new();
    let source = dir.path().join("only.c");
    std::fs::write(&source, "#include <polylatch.h>\nint main(void) { return pl_version() == NULL; }\n")
        .unwrap();
    let program = dir.path().join("only");
    run(Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(header().parent().unwrap())
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(libraries())
        .arg("-lpolylatch_c"));
    run(&mut Command::new(program));
}

#[test]
fn the_cpp_example_acquires_and_releases_a_lock() {
    let (_dir, program) = cpp(&top().join("examples/cpp/first_lock.cpp"));
    let printed = run(&mut Command::new(program));
    assert!(printed.contains("write with token") && printed.ends_with("released\n"), "{printed}");
}

#[test]
fn the_go_example_gives_up_with_its_context() {
    let dir = TempDir::new();
    let program = dir.path().join("first-lock");
    run(Command::new("go")
        .current_dir(top().join("examples/go"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .env("CGO_CFLAGS", format!("-I{}", header().parent().unwrap().display()))
        .env("CGO_LDFLAGS", format!("-L{} -lpolylatch_c", libraries().display()))
        .env("GOFLAGS", "-mod=mod -buildvcs=false")
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache")));
    let printed = run(&mut Command::new(program));
    assert!(printed.contains("gave up: canceled") && printed.ends_with("released\n"), "{printed}");
}

#[test]
fn the_php_example_reports_that_the_lock_is_busy() {
    let printed = run(Command::new("php")
        .args(["-d", "ffi.enable=1"])
        .arg(top().join("examples/php/first_lock.php"))
        .arg(library())
        .arg(header()));
    assert!(printed.contains("it is busy") && printed.ends_with("released\n"), "{printed}");
}

/// The C programs of the page, in their order.
fn programs_of_the_page() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let blocks = page.split("```c\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// They are compiled as they stand there, and those that need no database are run.
#[test]
fn the_programs_of_the_page_are_compiled_and_run() {
    let mut text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page.c")).unwrap();
    for mut program in programs_of_the_page() {
        program = program.replace("\"redis://localhost\"", "url").replace("{ … }", "return 1;");
        if program.starts_with("static ") {
            let (function, rest) = program.split_once("\n}\n").unwrap();
            text = text.replace("/* function: on_event */", &format!("{function}\n}}\n"));
            program = rest.to_owned();
        }
        let line = text.lines().find(|line| {
            line.trim()
                .strip_prefix("/* program: ")
                .is_some_and(|line| program.contains(&format!("{}(", line.trim_end_matches(" */"))))
        });
        let line = line.unwrap_or_else(|| panic!("no place in page.c for:\n{program}")).to_owned();
        text = text.replace(&line, &program);
    }
    assert!(!text.contains("/* program: ") && !text.contains("/* function: "), "{text}");
    let dir = TempDir::new();
    let source = dir.path().join("page.c");
    std::fs::write(&source, text).unwrap();
    let (_built, program) = build("cc", &["-std=c11", "-Wno-unused-parameter"], &source);
    let redis = RedisServer::start();
    let printed = run(Command::new(program).arg(redis.url()));
    assert!(printed.contains("\"acquired\":") && printed.contains("polylatch_"), "{printed}");
}
