//! The command, as who runs it sees it.

mod adapters;
mod bench;
mod commands;
mod manual;
mod serve;
mod train;
