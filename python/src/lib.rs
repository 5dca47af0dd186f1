//! `oxptxas._native`: what the Python package does in Rust.

use oxptxas::command::{Console, Run};
use oxptxas::{Cancel, Kind, Settings, Style};
use oxsass::listing;
use oxsass::verify;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};

create_exception!(oxptxas, Refused, PyException, "Nothing was compiled: (kind, JSON lines and text).");

/// Keeps what is said, errors apart.
#[derive(Default)]
struct Log {
    errors: RefCell<String>,
    information: RefCell<String>,
}

impl Console for Log {
    fn info(&self, text: &str) {
        self.information.borrow_mut().push_str(text);
    }
    fn error(&self, text: &str) {
        self.errors.borrow_mut().push_str(text);
    }
    fn print(&self, text: &str) -> std::io::Result<()> {
        self.info(text);
        Ok(())
    }
    fn style(&self) -> Style {
        Style::Json
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Options => "options",
        Kind::Version => "version",
        Kind::Source => "source",
        Kind::NotBuilt => "not built",
        Kind::Cancelled => "cancelled",
        _ => "internal",
    }
}

/// The exception that a signal's handler raised (Ctrl-C), which ends a compilation on the main thread.
type Raised = Arc<Mutex<Option<PyErr>>>;

fn on_signals(raised: &Raised) -> Cancel {
    let (raised, home) = (raised.clone(), std::thread::current().id());
    Cancel::new(move || {
        // Others would wait for the interpreter's lock, which nobody needs them to have.
        if std::thread::current().id() != home {
            return false;
        }
        let Err(error) = Python::attach(|py| py.check_signals()) else { return false };
        *raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
        true
    })
}

/// Compiles; the cubin, and what was said.
#[pyfunction]
fn compile<'py>(
    py: Python<'py>,
    ptx: &[u8],
    options: Vec<String>,
) -> PyResult<(Bound<'py, PyBytes>, String)> {
    let raised = Raised::default();
    let cancel = Some(on_signals(&raised));
    let (result, errors, information) = py.detach(|| {
        let log = Log::default();
        let arguments: Vec<OsString> = options.into_iter().map(OsString::from).collect();
        let run = Run { text: Some(ptx), cancel, ..Run::new("ptxas", &arguments, &log) };
        let result = run.to_memory();
        (result, log.errors.into_inner(), log.information.into_inner())
    });
    if let Some(error) = raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
        return Err(error);
    }
    match result {
        Ok(Some(output)) => Ok((PyBytes::new(py, &output.cubin), information)),
        Ok(None) => Err(PyValueError::new_err("the options ask for no code")),
        Err(kind) => Err(Refused::new_err((name(kind), errors, information))),
    }
}

/// Executes code and its PTX on launches that are made up: for each kernel name, verdict and whether that is right; what was found without
/// executing anything, and whether that is right.
#[pyfunction]
#[allow(clippy::type_complexity)] // Python sees tuples.
fn verify_code(
    py: Python<'_>,
    ptx: &str,
    options: Vec<String>,
    cubin: Option<&[u8]>,
    launches: u64,
) -> PyResult<(Vec<(String, String, bool)>, Vec<String>, bool)> {
    let settings = Settings::parse(&options).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let judged = py.detach(|| -> Result<_, String> {
        let compiled = |settings: Settings| {
            let failed = |f: oxptxas::Failure| f.to_string();
            oxptxas::compile(ptx, oxptxas::command::IN_MEMORY, &settings).map(|o| o.cubin).map_err(failed)
        };
        let text = |errors: Vec<oxptxas::Diagnostic>| {
            errors.iter().map(|e| e.message.clone()).collect::<Vec<_>>().join("\n")
        };
        let module = verify::module(ptx, settings.target).map_err(text)?;
        let (code, exact) = match cubin {
            Some(bytes) => (bytes.to_vec(), None),
            None => {
                let exact = verify::may_be_contracted(&module)
                    .then(|| compiled(Settings { fmad: false, ..settings.clone() }));
                let code = compiled(Settings { line_info: Some(true), ..settings.clone() })?;
                (code, exact.transpose()?)
            }
        };
        let judged = |kernel: &str| {
            let judge = |code: &[u8]| verify::kernel(&module, ptx, code, kernel, 0..launches);
            let verdict = verify::either(judge, &code, exact.as_deref());
            (kernel.to_string(), verdict.to_string(), verdict.is_right())
        };
        let kernels = verify::kernels(&module).into_iter().map(judged).collect();
        let lines = if cubin.is_none() { verify::Lines::Ours } else { verify::Lines::Foreign };
        let (notes, right) = verify::at_rest(&module, ptx, &code, lines)?;
        Ok((kernels, notes, right))
    });
    judged.map_err(PyRuntimeError::new_err)
}

/// The listing of a cubin.
#[pyfunction]
fn disassemble(cubin: &[u8], control: bool, hex: bool) -> PyResult<String> {
    let style = listing::Style { hex, control, json: false, labels: true };
    listing::of_cubin(cubin, style).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Refused", module.py().get_type::<Refused>())?;
    module.add_function(wrap_pyfunction!(compile, module)?)?;
    module.add_function(wrap_pyfunction!(verify_code, module)?)?;
    module.add_function(wrap_pyfunction!(disassemble, module)?)
}
