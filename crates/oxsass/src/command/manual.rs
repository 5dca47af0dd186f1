//! `oxsass completions` and `oxsass man`.

use super::Result;
use clap::{Args, CommandFactory};
use std::io::{self, Write};

/// `oxsass completions`
#[derive(Args)]
pub struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints them.
    pub fn run<C: CommandFactory>(self, out: &mut impl Write) -> Result {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "oxsass", &mut text);
        Ok(out.write_all(&text)?)
    }
}

/// Prints the manual page, with one for each command behind it.
pub fn page<C: CommandFactory>(out: &mut impl Write) -> Result {
    fn pages(command: &clap::Command, title: String, out: &mut impl Write) -> io::Result<()> {
        clap_mangen::Man::new(command.clone()).title(title.as_str()).render(out)?;
        let below = command.get_subcommands().filter(|c| c.get_name() != "help");
        below.into_iter().try_for_each(|c| pages(c, format!("{title}-{}", c.get_name()), out))
    }
    let mut command = C::command();
    command.build();
    Ok(pages(&command, "oxsass".into(), out)?)
}
