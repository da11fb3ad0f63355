//! Compiles the engine or the hardened heap. The sources are those of `vendor/` in a package, and
//! those of the checkout otherwise. It refuses to search for a built library.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Files of the layers that are for tests alone, and one that only the hardened heap needs.
const OF_TESTS: [&str; 3] = ["counting", "event_counts", "no_features"];
const OS_OF_SECURE: &str = "entropy";

/// Off all fast paths: compiled for size, as by the `CMakeLists.txt` of their folders.
const SMALL: [&str; 49] = [
    "unwind/call_stack",
    "unwind/frame_tables",
    "unwind/frame_rules",
    "unwind/frame_expression",
    "unwind/frame_row",
    "unwind/table_reader",
    "os/readable_memory",
    "unwind/modules",
    "unwind/module_file",
    "os/loaded_modules",
    "os/bad_access",
    "unwind/stack_lines",
    "os/cgroup",
    "os/clock",
    "os/atomic_file",
    "os/options",
    "os/option_values",
    "core/address_range",
    "core/common_heap",
    "core/deferred_work",
    "core/fork",
    "core/heap_invariants",
    "core/heap_lifecycle",
    "core/invariants",
    "core/large_memory",
    "core/page_heap_growth",
    "core/page_heap_background",
    "features/arenas/arenas",
    "features/arenas/idle_arenas",
    "features/background/background_thread",
    "features/background/background_rounds",
    "features/guard/sampled_guard",
    "features/hugepages/huge_page_probe",
    "features/hugepages/huge_pages",
    "features/limits/limits",
    "features/profile/large_samples",
    "features/profile/stranded_bytes",
    "features/profile/probes",
    "features/profile/profile_file",
    "features/profile/profiling",
    "features/profile/sample_heap",
    "features/profile/samples",
    "features/profile/sampling",
    "features/profile/sampling_switch",
    "engine/follow_options",
    "engine/hooks",
    "core/view",
    "libc/diagnostics",
    "libc/stats",
];
/// Of those: a call stack goes on from there by frame pointers.
const WITH_FRAME_POINTER: &str = "unwind/call_stack";

/// The dialect of `src/CMakeLists.txt`.
const DIALECT: [&str; 10] = [
    "-std=c++20",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-builtin-malloc",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ftls-model=initial-exec",
    "-fno-lto",
    "-fasynchronous-unwind-tables",
];

/// Flags for the operators of C++ (`src/libc/CMakeLists.txt`).
const OPERATORS: [&str; 2] = ["-fsemantic-interposition", "-fsized-deallocation"];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    if variable("CARGO_CFG_TARGET_OS") != "linux"
        || variable("CARGO_CFG_TARGET_POINTER_WIDTH") != "64"
    {
        let target = variable("TARGET");
        return Err(format!(
            "tsmalloc is written for 64-bit Linux, and {target} is another target: \
             name it under [target.'cfg(target_os = \"linux\")'.dependencies] alone"
        ));
    }
    if has_feature("OVERRIDE") && has_feature("SECURE") && variable("CARGO_CFG_TARGET_ENV") != "gnu"
    {
        return Err(
            "the features override and secure together need glibc: take one of them".to_owned()
        );
    }
    let root = sources()?;
    let (src, include) = (root.join("src"), root.join("include"));
    println!("cargo::rerun-if-changed={}", src.display());
    println!("cargo::rerun-if-changed={}", include.display());
    println!("cargo::rerun-if-env-changed=TSMALLOC_DEBUG_LEVEL");
    println!("cargo::metadata=include={}", include.display());

    let mut compilation = cc::Build::new();
    compilation
        .cpp(true)
        .cpp_link_stdlib(None)
        .warnings(false)
        // A heap that is not optimised makes every debug build slow.
        .opt_level(2)
        .force_frame_pointer(false)
        .include(&src)
        .include(&include)
        .define("TS_DEBUG", debug_level()?.as_str());
    require_cxx20(&compilation)?;
    compilation
        .flags(DIALECT)
        .flag_if_supported("-fno-gnu-unique")
        .flag_if_supported("-fno-tree-loop-distribute-patterns");

    if has_feature("OVERRIDE") {
        // One file catches exceptions, those of a program's operator new.
        let throwing = [src.join("libc/cxx_runtime.cpp")];
        let throwing = objects(&compilation, &["-fexceptions"], &throwing)?;
        let names = objects(&compilation, &OPERATORS, &names_of_libc(&src))?;
        compilation.objects(throwing).objects(names);
    } else {
        compilation.file(src.join("libc").join(if has_feature("SECURE") {
            "prefixed_secure.cpp"
        } else {
            "prefixed.cpp"
        }));
    }
    let file_of = |name: &str| src.join(name).with_extension("cpp");
    let small: Vec<PathBuf> = SMALL.iter().map(|name| file_of(name)).collect();
    let walker = file_of(WITH_FRAME_POINTER);
    let (mut for_size, for_speed): (Vec<_>, Vec<_>) =
        layers(&src)?.into_iter().partition(|file| small.contains(file));
    for_size.retain(|file| *file != walker);
    for_size.push(file_of("libc/stats"));
    if has_feature("OVERRIDE") {
        for_size.push(file_of("libc/diagnostics"));
    }
    let walker = objects(&compilation, &["-Os", "-fno-omit-frame-pointer"], &[walker])?;
    let for_size = objects(&compilation, &["-Os"], &for_size)?;
    compilation
        .objects(walker)
        .objects(for_size)
        .files(for_speed)
        .try_compile("tsmalloc_sys")
        .map_err(|error| compile_error(&error))
}

fn objects(
    compilation: &cc::Build,
    flags: &[&str],
    files: &[PathBuf],
) -> Result<Vec<PathBuf>, String> {
    let mut compilation = compilation.clone();
    compilation.flags(flags).files(files);
    compilation.try_compile_intermediates().map_err(|error| compile_error(&error))
}

/// The folder of `src/` and `include/`.
fn sources() -> Result<PathBuf, String> {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    for root in [package.join("vendor"), package.join("../../..")] {
        if root.join("src/libc/prefixed.inc").is_file() {
            return Ok(root);
        }
    }
    Err(format!(
        "{} has no sources of tsmalloc: take the .crate file of a release, or build in a checkout",
        package.display()
    ))
}

/// The heap, and what is below it.
fn layers(src: &Path) -> Result<Vec<PathBuf>, String> {
    let is_secure = has_feature("SECURE");
    let heap: &[&str] = if is_secure { &["secure"] } else { &["core", "features", "engine"] };
    let mut files = Vec::new();
    for folder in ["os", "unwind"].iter().chain(heap) {
        files.extend(sources_in(&src.join(folder))?);
    }
    files.retain(|file| {
        let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        !OF_TESTS.contains(&name) && (is_secure || name != OS_OF_SECURE)
    });
    Ok(files)
}

/// All of them in a folder and below.
fn sources_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            files.extend(sources_in(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "cpp") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The functions that the crate declares, under the names of libc.
fn names_of_libc(src: &Path) -> Vec<PathBuf> {
    let names: &[&str] = if has_feature("SECURE") {
        &["secure.cpp"]
    } else if variable("CARGO_CFG_TARGET_ENV") == "gnu" {
        &["linked.cpp", "linked_operators.cpp", "thread_keys.cpp"]
    } else {
        &["linked.cpp", "linked_operators.cpp"]
    };
    names.iter().map(|name| src.join("libc").join(name)).collect()
}

/// A compiler there is, and it compiles C++20.
fn require_cxx20(compilation: &cc::Build) -> Result<(), String> {
    let compiler = compilation.try_get_compiler().map_err(|error| compile_error(&error))?;
    let path = compiler.path().display();
    match compilation.is_flag_supported("-std=c++20") {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("the C++ compiler {path} has no -std=c++20; {REMEDY}")),
        Err(_) => Err(format!("the C++ compiler {path} cannot be run; {REMEDY}")),
    }
}

const REMEDY: &str = "tsmalloc needs gcc 12 or clang 16, or a later one: install g++, \
                      or name a compiler in CXX";

fn compile_error(error: &cc::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    format!("the C++ compiler does not compile tsmalloc ({line}); {REMEDY}")
}

/// The debug level of `src/README.md`, which TSMALLOC_DEBUG_LEVEL names.
fn debug_level() -> Result<String, String> {
    let level = variable("TSMALLOC_DEBUG_LEVEL");
    match level.as_str() {
        "" => Ok("0".to_owned()),
        "0" | "1" | "2" | "3" => Ok(level),
        _ => Err(format!("TSMALLOC_DEBUG_LEVEL is `{level}`: it is 0, 1, 2 or 3, or unset")),
    }
}

fn has_feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
