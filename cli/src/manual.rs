//! `siskin man` and `siskin completions`: the manual page and the shell completions, both made from the arguments of
//! the program.

use crate::options::NoPackedFiles;
use crate::output;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use siskin::{Error, Result};
use std::io;

/// Print the manual page
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The command to describe instead of the whole program
    command: Option<String>,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

/// Print a completion script for a shell
#[derive(clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    shell: Shell,
    #[command(flatten)]
    _packed: NoPackedFiles,
}

/// The sections that arguments do not describe.
const SECTIONS: &str = "\
.SH MODELS
A
.I model
is a .siskin file, a GGUF file (of a split model, the first part), a Hugging Face folder with safetensors, a CTranslate2
folder, or an ONNX model. Formats other than .siskin are packed once and cached; without a usable cache folder they are
packed for each run.
.SH SERVICE
.B siskin.socket
listens on
.I /run/siskin.sock
and runs
.B siskin serve
for each connection, with the model that
.I /etc/siskin/siskin.conf
names. It is disabled by default:
.PP
.RS
.nf
siskin convert model.gguf \\-o /var/lib/siskin/model.siskin
systemctl enable \\-\\-now siskin.socket
.fi
.RE
.SH FILES
.TP
.I /etc/siskin/siskin.conf
The model of the service and its options.
.TP
.I /var/lib/siskin
The folder of the service's models.
.TP
.I ~/.cache/siskin
Packed models, or another folder by
.BR \\-\\-cache .
.TP
.I ~/.local/state/siskin/chat_history
The messages of
.BR \"siskin chat\" ,
for its arrow keys.
.SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
Failure.
.TP
.B 2
Invalid arguments.
.TP
.B 3
A file is missing, damaged or not supported.
.TP
.B 4
A text is too long for the context, or memory ran out.
.TP
.B 130
Interrupted.
.SH EXAMPLES
.nf
siskin run smollm2.gguf \"Why is the sky blue?\"
siskin embed minilm/ \"a sentence\" \"another\"
echo '{\"prompt\": \"Once\", \"max_tokens\": 9}' | siskin serve smollm2.gguf
.fi
";

pub(crate) fn man(args: &ManArgs, program: Command) -> Result<()> {
    let page = match &args.command {
        None => whole(program)?,
        Some(name) => one(program, name)?,
    };
    output::write(&page)
}

pub(crate) fn completions(args: &CompletionArgs, mut program: Command) -> Result<()> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, name, &mut script);
    output::write(&String::from_utf8_lossy(&script))
}

fn whole(program: Command) -> Result<String> {
    let man = Man::new(program);
    rendered(|to| man.render(to)).map(|page| page + SECTIONS)
}

fn one(mut program: Command, name: &str) -> Result<String> {
    // Gives global options to the commands.
    program.build();
    let known = program.get_subcommands().find(|command| command.get_name() == name);
    let Some(command) = known else {
        return Err(Error::argument("man", format!("`{name}` is not a command; `siskin help` lists them")));
    };
    let title = format!("siskin-{name}");
    let man = Man::new(command.clone().display_name(title.clone())).title(title);
    rendered(|to| man.render(to))
}

fn rendered(render: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> Result<String> {
    let mut page = Vec::new();
    render(&mut page).map_err(|error| Error::io("standard output", &error))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
