//! `oxsass`: the workbench.

mod command;

use clap::{Parser, Subcommand};
use command::{code, compare, explain, fatbin, manual, run, verify};
use std::io::{self, Write};
use std::process::ExitCode;

/// Look at, execute, check and compare GPU code
#[derive(Parser)]
#[command(name = "oxsass", version, arg_required_else_help = true, after_help = HELP_AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const HELP_AFTER: &str = "`oxsass help COMMAND` says more about one of them. The exit status is 0 only where everything \
    that was looked at is right.";

#[derive(Subcommand)]
enum Command {
    /// Disassemble a cubin, or a file of instruction words
    Dis(code::Dis),
    /// Assemble a listing as `dis` prints it
    ///
    /// With --raw, to a file of instruction words: `oxsass asm --raw sm_90 LISTING FILE`. With --into, a listing as `dis --control`
    /// prints it takes the place of the code of the same length in a cubin, of every kernel whose name (`NAME:`) stands in it, or of
    /// the kernel that is named.
    Asm(code::Asm),
    /// Compile PTX for several targets into one fat binary
    ///
    /// The file is parsed once. `--arch sm_80,sm_90,compute_80` has code for two SMs and the PTX itself for later ones; `--gencode` takes
    /// what nvcc takes. The driver chooses from such a file, cuobjdump lists and extracts what is in it, and `fatbinary` and nvcc
    /// embed it.
    Fatbin(fatbin::Fatbin),
    /// Work on PTX
    #[command(subcommand)]
    Ptx(code::Ptx),
    /// Execute a cubin, or interpret a PTX file, as a launch file says
    ///
    /// Launch files: docs/launch-files.md. Prints the output buffers, with --all every buffer; with --out, writes all of them as .npy files
    /// instead.
    Run(run::Run),
    /// Look for hazards: dependences that the control fields of the code do not cover, along every path
    ///
    /// With --contract, hold files against what the reference compiler's files always and never do instead (docs/hardware-contract.md):
    /// each form, control field, neighbourhood and attribute that those never have, with the nearest that they have.
    Check(code::Check),
    /// Compile PTX (or take a cubin), execute every kernel, interpret its PTX, and compare
    ///
    /// Launches are made up from seeds (docs/verify.md); hazards and the order of memory accesses are looked at as well. What
    /// differs is shown with the line of the PTX and the instruction of the code that stored it. With two more files, `oxsass
    /// verify FILE OTHER LAUNCH.toml`, both (cubin or PTX) are executed and their output buffers compared as the launch file says.
    Verify(verify::Verify),
    /// Compare the speed of our code of a PTX file with other code of it, by the model of docs/cycles.md
    ///
    /// Both run the same launches: made up, or those of a launch file.
    Compare(compare::Compare),
    /// Say why our code of a PTX file is as it is
    ///
    /// Which values need registers where, what is spilled, where each loop's time goes by the model of docs/cycles.md, what was unrolled
    /// or made into guarded instructions, and why not; with --html as a page with plots.
    Explain(explain::Explain),
    /// Where `verify` finds a difference in our code: the first phase of the compiler that makes it
    Bisect(verify::Bisect),
    /// Run a launch that the driver library recorded (docs/driver.md) again, and compare memory afterwards
    Replay(run::Replay),
    /// Print completions for a shell
    Completions(manual::Completions),
    /// Print the manual page
    Man,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = match cli.command {
        Command::Dis(c) => c.run(&mut out),
        Command::Asm(c) => c.run(),
        Command::Fatbin(c) => c.run(),
        Command::Ptx(c) => c.run(&mut out),
        Command::Run(c) => c.run(&mut out),
        Command::Check(c) => c.run(&mut out),
        Command::Verify(c) => c.run(&mut out),
        Command::Compare(c) => c.run(&mut out),
        Command::Explain(c) => c.run(&mut out),
        Command::Bisect(c) => c.run(&mut out),
        Command::Replay(c) => c.run(&mut out),
        Command::Completions(c) => c.run::<Cli>(&mut out),
        Command::Man => manual::page::<Cli>(&mut out),
    };
    // A closed pipe is the reader's choice.
    let result = result.and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(command::Error::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            _ = out.flush();
            eprintln!("oxsass: {e}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
