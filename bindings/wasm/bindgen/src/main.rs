//! `polylatch-wasm-bindgen MODULE FOLDER NAME`: writes NAME.js, NAME.d.ts and NAME_bg.wasm into FOLDER.

use std::path::PathBuf;
use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [module, folder, name] = words.as_slice() else {
        eprintln!("usage: polylatch-wasm-bindgen MODULE FOLDER NAME");
        return ExitCode::from(2);
    };
    let made = (|| {
        Bindgen::new()
            .input_path(module)
            .web(true)?
            .typescript(false)
            .omit_default_module_path(true)
            .remove_name_section(true)
            .remove_producers_section(true)
            .out_name(&name.to_string_lossy())
            .generate(folder)
    })();
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}
